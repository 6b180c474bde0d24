package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

func newEffects() *cobra.Command {
	cmd := group("effects", "Look at calls of other systems, and settle those of which nobody knows whether they landed")
	cmd.Long = `A step of a job or command that calls somebody else's system is unknown when nobody can tell whether it landed. It is not
called again, its job waits, and a lane waits with it, until somebody has found out.`
	cmd.Example = `  pawl effects list
  pawl effects show job/pay 17@1795285193170792 charge
  pawl effects settle job/pay 17@1795285193170792 charge landed --fence 41 --reference ch_3Mq --reason 'seen in their dashboard' --yes
  pawl effects again job/pay 17@1795285193170792 charge --fence 41 --reason 'the customer has a new card' --yes`
	cmd.AddCommand(newEffectsList(), newEffectsShow(), newEffectsSettle(), newEffectsAgain())
	return cmd
}

func newEffectsList() *cobra.Command {
	var f ops.EffectFilter
	var statuses []string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List steps, by scope, key and step; without --status those that are unknown",
		Args:    noArgs,
		Example: "  pawl effects list\n  pawl effects list --provider stripe --json | jq -r '.effects[].provider_key'\n  pawl effects list --scope job/pay --status planned",
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Scope, "scope", "", "only of this scope")
	flags.StringVar(&f.Key, "key", "", "only of this key")
	flags.StringVar(&f.Provider, "provider", "", "only of this provider")
	flags.StringSliceVar(&statuses, "status", []string{"unknown"}, "planned, succeeded, failed_final or unknown; several with commas")
	flags.IntVar(&f.Limit, "limit", 50, "steps at most, 1 to 1000")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, s := range statuses {
			f.Statuses = append(f.Statuses, ops.EffectStatus(s))
		}
		if err := cmp.Or(checkLimit(cmd, f.Limit), checkStatuses(cmd, ops.EffectStatuses(), f.Statuses...)); err != nil {
			return err
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			effects, err := ops.Effects(ctx, conn, f)
			if err != nil {
				return err
			}
			more := len(effects) == f.Limit
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), effectsJSON{each(effects, effectToJSON), more})
			}
			return printEffects(cmd, effects, more)
		})
	}
	return cmd
}

func printEffects(cmd *cobra.Command, effects []ops.Effect, more bool) error {
	if len(effects) == 0 {
		progress(cmd)("no such steps")
		return nil
	}
	rows := make([][]string, len(effects))
	for i, e := range effects {
		job := "-"
		if e.JobID != 0 {
			job = strconv.FormatInt(e.JobID, 10)
		}
		rows[i] = []string{visible(e.Scope), visible(e.Key), visible(e.Step), string(e.Status), strconv.FormatInt(e.Fence, 10), e.Policy, cell(e.Provider, nameWidth),
			strconv.Itoa(e.Calls), strconv.Itoa(e.InDoubt), job, span(e.ReadAt.Sub(e.UpdatedAt)), cell(e.Reference, nameWidth)}
	}
	heading := []string{"SCOPE", "KEY", "STEP", "STATUS", "FENCE", "POLICY", "PROVIDER", "CALLS", "IN DOUBT", "JOB", "SINCE", "REFERENCE"}
	if err := printTable(cmd.OutOrStdout(), heading, rows); err != nil {
		return err
	}
	if more {
		progress(cmd)("there may be more: raise --limit, or name a --scope")
	}
	return nil
}

func newEffectsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show SCOPE KEY STEP",
		Short:   "Show a step whole: each call, what was seen of it, what operators did",
		Example: "  pawl effects show job/pay 17@1795285193170792 charge",
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 3 {
			return misused(cmd, fmt.Sprintf("it takes 3 arguments, not %d", len(args)), "as in: "+cmd.UseLine())
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			d, found, err := ops.ShowEffect(ctx, conn, ops.EffectID{Scope: args[0], Key: args[1], Step: args[2]})
			switch {
			case err != nil:
				return err
			case !found:
				return failed(cmd, fmt.Errorf("there is no step %s of %s in scope %s", args[2], args[1], args[0]), "see: pawl effects list")
			case *asJSON:
				return printJSON(cmd.OutOrStdout(), effectDetailJSON{effectToJSON(d.Effect), each(d.History, effectCallToJSON), each(d.Changes, changeToJSON)})
			}
			_, err = io.WriteString(cmd.OutOrStdout(), effectText(d))
			return err
		})
	}
	return cmd
}

func effectText(d ops.EffectDetail) string {
	var out strings.Builder
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&out, "  %-10s %s\n", name, visible(value))
		}
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return when(t, d.ReadAt)
	}
	fmt.Fprintf(&out, "step %s of %s in %s\n", visible(d.Step), visible(d.Key), visible(d.Scope))
	field("status", string(d.Status))
	field("fence", strconv.FormatInt(d.Fence, 10))
	field("policy", d.Policy)
	field("provider", d.Provider)
	field("sent key", d.ProviderKey)
	field("reference", d.Reference)
	if d.JobID != 0 {
		field("job", strconv.FormatInt(d.JobID, 10))
	}
	field("failure", strings.TrimPrefix(d.FailureCode+": "+d.Failure, ": "))
	field("created", at(d.CreatedAt))
	field("memory", at(d.MemoryEndsAt))
	fmt.Fprintf(&out, "  %-10s %d, of %d nobody knows whether they landed\n", "calls", d.Calls, d.InDoubt)
	for _, c := range d.History {
		fmt.Fprintf(&out, "    %s\n", effectCallText(c))
	}
	fmt.Fprintf(&out, "  %-10s changes by hand: %d\n", "audit", len(d.Changes))
	for _, c := range d.Changes {
		fmt.Fprintf(&out, "    %s\n", changeText(c))
	}
	switch d.Status {
	case ops.EffectUnknown:
		field("next", "ask the provider, then: "+settleLine(d.EffectID, d.Fence))
	case ops.EffectFailedFinal:
		field("next", "the refusal is stored; if it may be accepted now: "+againLine(d.EffectID, d.Fence))
	}
	return out.String()
}

// settleLine and againLine are the commands that name the step as it was shown.
func settleLine(id ops.EffectID, fence int64) string {
	return fmt.Sprintf("pawl effects settle %s %s %s landed|refused|not_landed --fence %d --reason …", quoted(id.Scope), quoted(id.Key), quoted(id.Step), fence)
}

func againLine(id ops.EffectID, fence int64) string {
	return fmt.Sprintf("pawl effects again %s %s %s --fence %d --reason …", quoted(id.Scope), quoted(id.Key), quoted(id.Step), fence)
}

func effectCallText(c ops.EffectCall) string {
	what, outcome := "call", "nobody said how it ended; nothing was sent after "+c.NotAfter.UTC().Format(time.RFC3339)
	if c.Probe {
		what = "probe"
	}
	if c.Outcome != "" {
		outcome = fmt.Sprintf("%s after %v", c.Outcome, c.EndedAt.Sub(c.StartedAt).Round(time.Millisecond))
	}
	text := fmt.Sprintf("%s %s %d: %s", c.StartedAt.UTC().Format(time.RFC3339), what, c.Fence, outcome)
	if c.Reference != "" {
		text += ", " + c.Reference
	}
	if len(c.Detail) > len("{}") {
		text += ", " + string(c.Detail)
	}
	return visible(text)
}

// verdicts are what effects settle takes, as people type them.
var verdicts = []string{"landed", "refused", "not_landed"}

func newEffectsSettle() *cobra.Command {
	var by ops.By
	var v ops.Verdict
	cmd := &cobra.Command{
		Use:   "settle SCOPE KEY STEP landed|refused|not_landed --fence N --reason TEXT",
		Short: "Say what became of a step of which nobody knew",
		Long: `Settles an unknown step, after you have found out at the provider what became of it:

  landed       it took effect: the handler goes on behind it, with --result
  refused      it did not and never will: the handler is told
  not_landed   it did not: it is called again, now

--fence is what effects show or effects list printed when you looked. If another call has begun since, your verdict is not about that one, and
nothing changes.

The job that waits for it goes on. A wrong "not_landed" makes it happen twice, a wrong "landed" not at all. Who and why go to
pawl.audit.`,
		Example: "  pawl effects settle job/pay 17@1795285193170792 charge landed --fence 41 --result '{\"id\": \"ch_3Mq\"}' --reason 'seen in their dashboard' --yes",
	}
	addByFlags(cmd, &by)
	addFenceFlag(cmd, &by)
	flags := cmd.Flags()
	flags.StringVar(&v.Result, "result", "", "of what landed: what the call would have returned, as JSON")
	flags.StringVar(&v.Reference, "reference", "", "of what landed: the provider's name for it")
	flags.StringVar(&v.Code, "code", "", "of a refusal: the provider's code")
	yes := flags.Bool("yes", false, "do not ask; required where nobody can be asked")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 4 || !slices.Contains(verdicts, args[3]) {
			return misused(cmd, "it takes a scope, a key, a step, and one of "+strings.Join(verdicts, ", "), "as in: "+cmd.UseLine())
		}
		if err := checkBy(cmd, &by); err != nil {
			return err
		}
		if err := checkFence(cmd, by, "pawl effects show "+quoted(args[0])+" "+quoted(args[1])+" "+quoted(args[2])); err != nil {
			return err
		}
		v.Outcome = args[3]
		id := ops.EffectID{Scope: args[0], Key: args[1], Step: args[2]}
		what, warning := fmt.Sprintf("settle step %s of %s as %s", id.Step, id.Key, v.Outcome), "a wrong verdict makes it happen twice, or not at all"
		if !*yes && !mayAsk(cmd) {
			return misused(cmd, fmt.Sprintf("this would %s: %s", what, warning), "add --yes")
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			if !*yes && !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question(conn, what, warning)) {
				return failed(cmd, errors.New("not agreed to; nothing changed"), "answer y, or add --yes")
			}
			r, err := ops.SettleEffect(ctx, conn, id, v, by)
			var pg *pgconn.PgError
			if pawl.CodeOf(err) == "55P03" && errors.As(err, &pg) {
				return failed(cmd, errors.New("an open transaction has its row locked"), "ask again when that has ended")
			}
			if err != nil {
				return err
			}
			return printSettled(cmd, id, r, *asJSON)
		})
	}
	return cmd
}

func printSettled(cmd *cobra.Command, id ops.EffectID, r ops.SettleResult, asJSON bool) (err error) {
	switch {
	case asJSON:
		err = printJSON(cmd.OutOrStdout(), settledJSON{string(r.Outcome), given(string(r.Status)), given(r.Fence), given(r.RetryAfter.Milliseconds()), given(r.Hint)})
	case r.Changed():
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "step %s settled: it is %s\n", visible(id.Step), r.Status)
	}
	if err != nil || r.Changed() {
		return err
	}
	why := fmt.Sprintf("there is no step %s of %s in scope %s", id.Step, id.Key, id.Scope)
	switch r.Outcome {
	case ops.Refused:
		why = fmt.Sprintf("step %s is %s", id.Step, r.Status)
	case ops.Moved:
		why = fmt.Sprintf("step %s has been called again since you looked", id.Step)
	case ops.Early:
		why = fmt.Sprintf("step %s may still be sent in the next %v", id.Step, r.RetryAfter.Round(time.Second))
	}
	return failed(cmd, errors.New(why), r.Hint)
}

type effectsJSON struct {
	Effects []effectJSON `json:"effects"`
	More    bool         `json:"more"` // there may be more than the limit
}

type effectJSON struct {
	Scope         string     `json:"scope"`
	Key           string     `json:"key"`
	Step          string     `json:"step"`
	Status        string     `json:"status"`
	Fence         int64      `json:"fence"`
	Policy        string     `json:"policy"`
	Provider      *string    `json:"provider"`
	ProviderKey   string     `json:"provider_key"`
	Reference     *string    `json:"reference"`
	Job           *int64     `json:"job"`
	Calls         int        `json:"calls"`
	InDoubt       int        `json:"in_doubt"`
	FirstCalledAt *time.Time `json:"first_called_at"`
	LastNotAfter  *time.Time `json:"last_not_after"`
	MemoryEndsAt  *time.Time `json:"memory_ends_at"`
	FailureCode   *string    `json:"failure_code"`
	Failure       *string    `json:"failure"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

func effectToJSON(e ops.Effect) effectJSON {
	return effectJSON{Scope: e.Scope, Key: e.Key, Step: e.Step, Status: string(e.Status), Fence: e.Fence, Policy: e.Policy, Provider: given(e.Provider),
		ProviderKey: e.ProviderKey, Reference: given(e.Reference), Job: given(e.JobID), Calls: e.Calls, InDoubt: e.InDoubt,
		FirstCalledAt: given(e.FirstCalledAt.UTC()), LastNotAfter: given(e.LastNotAfter.UTC()), MemoryEndsAt: given(e.MemoryEndsAt.UTC()),
		FailureCode: given(e.FailureCode), Failure: given(e.Failure), CreatedAt: e.CreatedAt.UTC(), UpdatedAt: e.UpdatedAt.UTC()}
}

type effectDetailJSON struct {
	effectJSON
	History []effectCallJSON `json:"history"`
	Audit   []changeJSON     `json:"audit"`
}

type effectCallJSON struct {
	Fence     int64           `json:"fence"`
	Probe     bool            `json:"probe"`
	StartedAt time.Time       `json:"started_at"`
	NotAfter  time.Time       `json:"not_after"`
	EndedAt   *time.Time      `json:"ended_at"` // null: nobody said
	Outcome   *string         `json:"outcome"`
	Reference *string         `json:"reference"`
	Detail    json.RawMessage `json:"detail"`
}

func effectCallToJSON(c ops.EffectCall) effectCallJSON {
	return effectCallJSON{Fence: c.Fence, Probe: c.Probe, StartedAt: c.StartedAt.UTC(), NotAfter: c.NotAfter.UTC(), EndedAt: given(c.EndedAt.UTC()),
		Outcome: given(c.Outcome), Reference: given(c.Reference), Detail: c.Detail}
}

type settledJSON struct {
	Outcome      string  `json:"outcome"` // settled; refused, moved, early, absent
	Status       *string `json:"status"`  // now
	Fence        *int64  `json:"fence"`   // now, if it has moved
	RetryAfterMS *int64  `json:"retry_after_ms"`
	Hint         *string `json:"hint"` // the next step, if nothing changed
}
