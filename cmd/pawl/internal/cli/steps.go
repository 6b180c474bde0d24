package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newSteps() *cobra.Command {
	cmd := group("steps", "Look at calls of other systems, and settle those of unknown outcome")
	cmd.Long = `A step is a call of another system by a job or command. It is unknown if it cannot be told whether it was executed. It is not
called again, its job waits, and a lane waits with it, until you settle it.`
	cmd.Example = `  pawl steps list
  pawl steps show job/pay 17@1795285193170792 charge
  pawl steps settle job/pay 17@1795285193170792 charge executed --fence 41 --reference ch_3Mq --reason 'seen in their dashboard' --yes
  pawl steps again job/pay 17@1795285193170792 charge --fence 41 --reason 'the customer has a new card' --yes`
	cmd.AddCommand(newStepsList(), newStepsShow(), newStepsSettle(), newStepsAgain())
	return cmd
}

func newStepsList() *cobra.Command {
	var s ops.Steps
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List steps, by scope, key and step; without --status those that are unknown",
		Example: "  pawl steps list\n  pawl steps list --provider stripe --json | jq -r '.steps[].provider_key'\n  pawl steps list --scope job/pay --status planned",
	}
	flags := cmd.Flags()
	flags.StringVar(&s.Scope, "scope", "", "only of this scope")
	flags.StringVar(&s.Key, "key", "", "only of this key")
	flags.StringVar(&s.Provider, "provider", "", "only of this provider")
	addStatusFlag(cmd, &s.Statuses, ops.StepStatuses(), "unknown")
	return list[ops.Step]{name: "steps", none: "no such steps", row: stepCells,
		heading: []string{"SCOPE", "KEY", "STEP", "STATUS", "FENCE", "POLICY", "PROVIDER", "CALLS", "IN DOUBT", "JOB", "SINCE", "REFERENCE"},
		check:   func(cmd *cobra.Command) error { return checkStatuses(cmd, ops.StepStatuses(), s.Statuses...) },
		read:    func(ctx context.Context, conn *pgx.Conn) (ops.Page[ops.Step], error) { return s.List(ctx, conn) },
	}.on(cmd, &s.Limit, &s.After)
}

func stepCells(s ops.Step) []string {
	return []string{text.Visible(s.Scope), text.Visible(s.Key), text.Visible(s.Step), string(s.Status), strconv.FormatInt(s.Fence, 10), s.Recovery, cell(s.Provider, nameWidth),
		strconv.Itoa(s.Calls), strconv.Itoa(s.InDoubt), idCell(s.JobID), span(s.ReadAt.Sub(s.UpdatedAt)), cell(s.Reference, nameWidth)}
}

// idCell is an id, of which 0 is none.
func idCell(id int64) string {
	if id == 0 {
		return "-"
	}
	return strconv.FormatInt(id, 10)
}

func newStepsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show SCOPE KEY STEP",
		Short:   "Show a step whole: each call, what was seen of it, what operators did",
		Example: "  pawl steps show job/pay 17@1795285193170792 charge",
	}
	return show[ops.Step]{arguments: 3,
		get: func(ctx context.Context, conn *pgx.Conn, args []string) (ops.Step, error) {
			return stepRef(args, 0).Get(ctx, conn)
		},
		next: func([]string) string { return "see: pawl steps list" },
		text: stepText,
	}.on(cmd)
}

func stepRef(args []string, fence int64) ops.StepRef {
	return ops.StepRef{Scope: args[0], Key: args[1], Step: args[2], Fence: fence}
}

func stepText(s ops.Step) string {
	var out sheet
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			out.field(name, "%s", when(t, s.ReadAt))
		}
	}
	out.title("step %s of %s in %s", s.Step, s.Key, s.Scope)
	out.field("status", "%s", s.Status)
	out.field("fence", "%d", s.Fence)
	out.text("recovery", s.Recovery)
	out.text("provider", s.Provider)
	out.text("sent key", s.ProviderKey)
	out.text("reference", s.Reference)
	if s.JobID != 0 {
		out.field("job", "%d", s.JobID)
	}
	out.text("failure", failure(s.FailureCode, s.FailureMessage))
	at("created", s.CreatedAt)
	at("memory", s.MemoryEndsAt)
	out.field("calls", "%d, of which %d may or may not have been executed", s.Calls, s.InDoubt)
	out.lines(each(s.History, stepCallText))
	out.audit(s.Changes)
	switch s.Status {
	case ops.StatusUnknown:
		out.field("next", "ask the provider, then: %s", settleLine(s.Ref()))
	case ops.StatusFailedFinal:
		out.field("next", "the refusal is stored; if it may be accepted now: %s", againLine(s.Ref()))
	}
	return out.String()
}

// settleLine and againLine are the commands that name the step as it was shown.
func settleLine(r ops.StepRef) string {
	return fmt.Sprintf("pawl steps settle %s %s %s executed|refused|not_executed --fence %d --reason …", text.ShellWord(r.Scope), text.ShellWord(r.Key), text.ShellWord(r.Step), r.Fence)
}

func againLine(r ops.StepRef) string {
	return fmt.Sprintf("pawl steps again %s %s %s --fence %d --reason …", text.ShellWord(r.Scope), text.ShellWord(r.Key), text.ShellWord(r.Step), r.Fence)
}

func stepCallText(c ops.StepCall) string {
	what, outcome := "call", "its end was not recorded; nothing was sent after "+c.NotAfter.UTC().Format(time.RFC3339)
	if c.Probe {
		what = "probe"
	}
	if c.Outcome != "" {
		outcome = fmt.Sprintf("%s after %v", c.Outcome, c.EndedAt.Sub(c.StartedAt).Round(time.Millisecond))
	}
	line := fmt.Sprintf("%s %s %d: %s", c.StartedAt.UTC().Format(time.RFC3339), what, c.Fence, outcome)
	if c.Reference != "" {
		line += ", " + c.Reference
	}
	if len(c.Detail) > len("{}") {
		line += ", " + string(c.Detail)
	}
	return text.Visible(line)
}

// verdicts are what steps settle takes, as people type them.
var verdicts = []string{"executed", "refused", "not_executed"}

func newStepsSettle() *cobra.Command {
	var v ops.StepVerdict
	var fence int64
	cmd := &cobra.Command{
		Use:   "settle SCOPE KEY STEP executed|refused|not_executed --fence N --reason TEXT",
		Short: "Say what became of a step of unknown outcome",
		Long: `Settles an unknown step, after you have found out at the provider what became of it:

  executed       it took effect: the handler goes on behind it, with --result
  refused        it did not and never will: the handler is told
  not_executed   it did not: it is called again, now

--fence is what steps show or steps list printed when you looked. If another call has begun since, your verdict is not about that one, and
nothing changes.

The job that waits for it goes on. A wrong "not_executed" makes it happen twice, a wrong "executed" not at all. Who and why go to
pawl.audit.`,
		Example: "  pawl steps settle job/pay 17@1795285193170792 charge executed --fence 41 --result '{\"id\": \"ch_3Mq\"}' --reason 'seen in their dashboard' --yes",
	}
	addFenceFlag(cmd, &fence)
	flags := cmd.Flags()
	flags.StringVar(&v.Result, "result", "", "of what was executed: what the call would have returned, as JSON")
	flags.StringVar(&v.Reference, "reference", "", "of what was executed: the provider's name for it")
	flags.StringVar(&v.Code, "code", "", "of a refusal: the provider's code")
	settle := stepVerb(&fence, "a wrong verdict makes it happen twice, or not at all")
	settle.arguments = 4
	settle.what = func(args []string) string { return stepName(args) + " as " + args[3] }
	check := settle.check
	settle.check = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(verdicts, args[3]) {
			return misused(cmd, "the verdict is one of "+strings.Join(verdicts, ", "), "as in: "+cmd.UseLine())
		}
		return check(cmd, args)
	}
	settle.do = func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
		v.Outcome = args[3]
		return stepRef(args, fence).Settle(ctx, conn, v, by)
	}
	settle.done = func(args []string, r ops.Result) string {
		return fmt.Sprintf("step %s settled: it is %s", text.Visible(args[2]), r.Now)
	}
	return settle.on(cmd)
}

func stepName(args []string) string { return fmt.Sprintf("step %s of %s", args[2], args[1]) }

// stepVerb is a verb whose first arguments name a step, and that requires its fence.
func stepVerb(fence *int64, warning string) verb {
	return verb{arguments: 3, what: stepName, warning: warning, locked: "an open transaction has its row locked",
		check: func(cmd *cobra.Command, args []string) error {
			return checkFence(cmd, *fence, "pawl steps show "+text.ShellWord(args[0])+" "+text.ShellWord(args[1])+" "+text.ShellWord(args[2]))
		},
		why: func(args []string, r ops.Result) (why, next string) {
			switch r.Outcome {
			case ops.Refused:
				return fmt.Sprintf("step %s is %s", args[2], r.Was), ""
			case ops.Moved:
				return fmt.Sprintf("step %s has been called again since you looked", args[2]), ""
			case ops.Early:
				return fmt.Sprintf("a call of step %s may still be sent in the next %v", args[2], r.RetryAfter.Round(time.Second)), ""
			}
			return fmt.Sprintf("there is no %s in scope %s", stepName(args), args[0]), "see: pawl steps list"
		}}
}

// againWarning says what calling again can cause.
const againWarning = "no key ties the new call to the old ones: if the provider took one of them after all, it happens twice"

func newStepsAgain() *cobra.Command {
	var key string
	var fence int64
	cmd := &cobra.Command{
		Use:   "again SCOPE KEY STEP --fence N --reason TEXT",
		Short: "Have a step that was refused for good called again, under a new key",
		Long: `Has a step called again that its provider refused for good, as when a card was declined and the customer has another one. The refusal is
stored, and the provider repeats it for the old key, so pawl dlq retry alone dies again at once.

The step is called under a new key at the next attempt of its job: retry the job afterwards. No key ties the new call to the old ones. If the
provider took one of the old calls after all, it happens twice: look at its dashboard for the old key first.

--fence is what steps show printed when you looked. If another call has begun since, nothing changes. Who and why go to pawl.audit.`,
		Example: "  pawl steps again job/pay 17@1795285193170792 charge --fence 41 --reason 'the customer has a new card' --dry-run\n" +
			"  pawl steps again job/pay 17@1795285193170792 charge --fence 41 --reason 'the customer has a new card' --yes",
	}
	addFenceFlag(cmd, &fence)
	cmd.Flags().StringVar(&key, "key", "", "the new key (default: a random UUID)")
	again := stepVerb(&fence, againWarning)
	again.do = func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
		return stepRef(args, fence).Again(ctx, conn, key, by)
	}
	again.done = func(args []string, r ops.Result) string {
		next := "its owner calls at its next attempt; a command that has ended needs a new key of its caller"
		if r.JobID != 0 {
			next = fmt.Sprintf("pawl dlq retry %d --reason …", r.JobID)
		}
		under := "a new key"
		if r.ProviderKey != "" {
			under = "the key " + text.Visible(r.ProviderKey)
		}
		return fmt.Sprintf("step %s is called under %s at the next attempt\nnext: %s", text.Visible(args[2]), under, next)
	}
	return again.on(cmd)
}
