package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// A replay is one call of the command.
type replay struct {
	by                ops.By
	since, until      string
	dryRun, yes, json *bool
}

func newInboxReplay() *cobra.Command {
	r := &replay{}
	cmd := &cobra.Command{
		Use:   "replay CONSUMER [ID...] --reason TEXT",
		Short: "Have deliveries tried again that have not taken effect",
		Long: `Has deliveries tried again: those named, or all that were kept in an interval. What took effect is left alone, whatever is asked, and
what its sender sends meanwhile is a duplicate.

  its job is a dead letter, cancelled, or waits    the job is due now, with all its attempts before it
  its job was discarded, or it was forgotten       a new job, made of what was kept of it in pawl.delivery
  it took effect                                   nothing; if its effect was taken back: pawl inbox forget, then this

Each delivery is a transaction of its own. Who and why go to pawl.audit. Exit 1 if any of those named, or any of the interval that has not
taken effect, could not be replayed; the others are.`,
		Example: `  pawl inbox replay stripe evt_1 --reason 'the account exists now' --yes
  pawl inbox replay github --since 6h --reason 'the deploy of noon failed them all' --dry-run`,
	}
	addByFlags(cmd, &r.by)
	cmd.Flags().StringVar(&r.since, "since", "", "instead of IDs: what was kept since then, a time (RFC 3339) or how long ago (6h)")
	cmd.Flags().StringVar(&r.until, "until", "", "until before then (default: now)")
	r.dryRun = cmd.Flags().Bool("dry-run", false, "say what would be done, and change nothing")
	r.yes = cmd.Flags().Bool("yes", false, "do not ask; required where nobody can be asked")
	r.json = addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return r.run(cmd, args) }
	return cmd
}

func (r *replay) run(cmd *cobra.Command, args []string) error {
	now := time.Now()
	from, until, err := r.interval(cmd, now)
	switch {
	case err != nil:
		return err
	case len(args) == 0 || (len(args) == 1) == (r.since == ""):
		return misused(cmd, "it takes a consumer, and either IDs or --since", "as in: "+cmd.UseLine())
	}
	if err := checkBy(cmd, &r.by); err != nil {
		return err
	}
	what := fmt.Sprintf("replay %s of consumer %s", plural(len(args)-1, "delivery", "deliveries"), args[0])
	if r.since != "" {
		what = fmt.Sprintf("replay the deliveries of consumer %s kept from %s until %s", args[0], from.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
	}
	const warning = "handlers run again for those that have not taken effect"
	ask := !*r.yes && !*r.dryRun
	if ask && !mayAsk(cmd) {
		return misused(cmd, fmt.Sprintf("this would %s: %s", what, warning), "add --yes, or --dry-run to see what it would do")
	}
	return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		if ask && !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question(conn, what, warning)) {
			return failed(cmd, errors.New("not agreed to; nothing changed"), "answer y, or add --yes")
		}
		ids := args[1:]
		if r.since != "" {
			if ids, err = keptIDs(ctx, conn, args[0], from, until); err != nil {
				return err
			}
		}
		return r.replay(ctx, cmd, conn, args[0], ids)
	})
}

// interval reads --since and --until.
func (r *replay) interval(cmd *cobra.Command, now time.Time) (from, until time.Time, err error) {
	if r.since == "" && r.until != "" {
		return from, until, misused(cmd, "--until goes with --since", "add --since")
	}
	until = now
	for _, f := range []struct {
		flag, text string
		into       *time.Time
	}{{"since", r.since, &from}, {"until", r.until, &until}} {
		if f.text == "" {
			continue
		}
		if ago, err := time.ParseDuration(f.text); err == nil {
			*f.into = now.Add(-ago)
		} else if *f.into, err = time.Parse(time.RFC3339, f.text); err != nil {
			return from, until, misused(cmd, fmt.Sprintf("--%s %q is neither a time nor a duration", f.flag, f.text), "as in: --"+f.flag+" 2026-11-21T12:00:00Z, or 6h")
		}
	}
	if r.since != "" && !from.Before(until) {
		return from, until, misused(cmd, "the interval is empty", "let --since be before --until")
	}
	return from, until, nil
}

// keptIDs reads all ids first: those replayed meanwhile stay where they are.
func keptIDs(ctx context.Context, conn *pgx.Conn, consumer string, from, until time.Time) (ids []string, err error) {
	for k, err := range ops.KeptInbox(ctx, conn, consumer, from, until) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, k.MessageID)
	}
	return ids, nil
}

// replay goes through the deliveries and tells what became of each, also if it has to stop on the way.
func (r *replay) replay(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, consumer string, ids []string) error {
	results, misses := []replayJSON{}, []string{}
	stopped := func() error {
		for _, id := range ids {
			one, err := r.one(ctx, conn, consumer, id)
			if err != nil {
				return err
			}
			results = append(results, one)
			if one.Hint != nil && (r.since == "" || one.ProcessedAt == nil) {
				misses = append(misses, fmt.Sprintf("delivery %s: %s", visible(id), *one.Hint))
			}
		}
		return nil
	}()
	var err error
	if *r.json {
		err = printJSON(cmd.OutOrStdout(), results)
	} else {
		_, err = fmt.Fprint(cmd.OutOrStdout(), r.text(results))
	}
	switch {
	case err != nil:
		return err
	case stopped != nil:
		return stopped
	case len(misses) > 0:
		return failed(cmd, fmt.Errorf("%d of %s", len(misses), plural(len(ids), "delivery", "deliveries")), strings.Join(misses, "; "))
	}
	return nil
}

// one replays a delivery. A locked row concerns this delivery only, so it is an answer here.
func (r *replay) one(ctx context.Context, conn *pgx.Conn, consumer, id string) (replayJSON, error) {
	a, err := ops.ReplayInbox(ctx, conn, consumer, id, *r.dryRun, r.by)
	var pg *pgconn.PgError
	if pawl.CodeOf(err) == "55P03" && errors.As(err, &pg) {
		return replayJSON{MessageID: id, Outcome: "locked", Hint: given("an open transaction has it; ask again when that has ended")}, nil
	}
	if a.Outcome == ops.Absent {
		a.Hint = notSeen([]string{consumer, id}) + ", and none was kept"
	}
	j := replayJSON{MessageID: id, Outcome: string(a.Outcome), Job: given(a.Job), Was: given(string(a.Was)), Hint: given(a.Hint)}
	if !a.ProcessedAt.IsZero() {
		j.ProcessedAt = given(a.ProcessedAt.UTC())
	}
	return j, err
}

var replayWords = map[ops.Outcome]string{ops.Replayed: "is tried again", ops.WouldReplay: "would be tried again"}

func (r *replay) text(results []replayJSON) string {
	var out strings.Builder
	done := 0
	for _, one := range results {
		switch ops.Outcome(one.Outcome) {
		case ops.Replayed, ops.WouldReplay:
			job := "a new job"
			if one.Job != nil {
				job = fmt.Sprintf("job %d, new", *one.Job)
			}
			if one.Was != nil {
				job = fmt.Sprintf("job %d, was %s", *one.Job, *one.Was)
			}
			fmt.Fprintf(&out, "delivery %s %s (%s)\n", visible(one.MessageID), replayWords[ops.Outcome(one.Outcome)], job)
		default:
			if one.ProcessedAt != nil {
				done++
			}
		}
	}
	if r.since != "" {
		fmt.Fprintf(&out, "%s looked at, %d took effect before\n", plural(len(results), "delivery", "deliveries"), done)
	}
	return out.String()
}

type replayJSON struct {
	MessageID   string     `json:"message_id"`
	Outcome     string     `json:"outcome"`      // replayed, would_replay; refused, absent, locked
	Job         *int64     `json:"job"`          // that owns the delivery
	Was         *string    `json:"was"`          // the status of that job before; null: it is new
	ProcessedAt *time.Time `json:"processed_at"` // it took effect then, and was refused
	Hint        *string    `json:"hint"`         // the next step, unless replayed
}
