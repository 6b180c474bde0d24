package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

func newLanes() *cobra.Command {
	cmd := group("lanes", "Look at lanes, unblock them, and set what they do on a dead letter")
	cmd.Long = `Jobs of one lane of a queue run one at a time, in order. When the job that has the turn becomes a dead letter, the lane's
policy decides:

  block   the lane stands, until somebody retries or discards the job, or unblocks the lane
  park    the lane goes on; a retry brings the job back at its old position
  skip    the lane goes on; a retry runs the job outside of it`
	cmd.Example = `  pawl lanes list --blocked
  pawl dlq retry 17 --reason 'the stock service is back'      # the head of a blocked lane: keeps the order
  pawl lanes unblock orders account-17 --job 17 --reason 'booked by hand' --yes
  pawl lanes policy orders account-17 park --reason 'order matters less than delay here'`
	cmd.AddCommand(newLanesList(), newLanesUnblock(), newLanesPolicy())
	return cmd
}

func newLanesList() *cobra.Command {
	var f ops.LaneFilter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List lanes, oldest first",
		Args:    noArgs,
		Example: "  pawl lanes list --blocked\n  pawl lanes list --queue orders --after 1200 --limit 200\n  pawl lanes list --blocked --json | jq -r '.lanes[].head'",
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Queue, "queue", "", "only of this queue")
	flags.BoolVar(&f.Blocked, "blocked", false, "only those that stand until somebody decides")
	flags.IntVar(&f.Limit, "limit", 50, "lanes at most, 1 to 1000")
	flags.Int64Var(&f.After, "after", 0, "only ids above this one: the last id of the page before")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.Limit < 1 {
			return misused(cmd, "--limit must lie between 1 and 1000", "see: "+cmd.CommandPath()+" --help")
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			lanes, err := ops.Lanes(ctx, conn, f)
			if err != nil {
				return err
			}
			var next *int64
			if len(lanes) == f.Limit {
				next = &lanes[len(lanes)-1].ID
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), lanesJSON{each(lanes, laneToJSON), next})
			}
			return printLanes(cmd, lanes, next)
		})
	}
	return cmd
}

func printLanes(cmd *cobra.Command, lanes []ops.Lane, next *int64) error {
	if len(lanes) == 0 {
		progress(cmd)("no lanes")
		return nil
	}
	rows := make([][]string, len(lanes))
	for i, l := range lanes {
		head, oldest := "-", "-"
		if l.Head != 0 {
			head = strconv.FormatInt(l.Head, 10)
		}
		if l.Waiting > 0 {
			oldest = span(l.ReadAt.Sub(l.Oldest))
		}
		rows[i] = []string{strconv.FormatInt(l.ID, 10), cell(l.Queue, nameWidth), cell(l.Name, nameWidth), l.Policy, head,
			cell(string(l.HeadStatus), nameWidth), strconv.Itoa(l.Waiting), oldest}
	}
	if err := printTable(cmd.OutOrStdout(), []string{"ID", "QUEUE", "LANE", "POLICY", "HEAD", "STATUS", "WAITING", "OLDEST"}, rows); err != nil {
		return err
	}
	if next != nil {
		progress(cmd)(fmt.Sprintf("there may be more: add --after %d", *next))
	}
	return nil
}

func newLanesUnblock() *cobra.Command {
	var job int64
	cmd := &cobra.Command{
		Use:   "unblock QUEUE LANE --reason TEXT",
		Short: "Let a lane go on without the dead letter that blocks it",
		Long: `Ends the turn of the dead letter that blocks a lane; what waits behind it runs. The dead letter stays, to be retried or
discarded. If the order matters, retry the dead letter instead: it has kept its turn. Who and why go to pawl.audit.`,
		Example: "  pawl lanes unblock orders account-17 --job 17 --reason 'booked by hand' --yes",
	}
	cmd.Flags().Int64Var(&job, "job", 0, "only if this job blocks it; 0 means any")
	return laneChange(cmd, 2, "what waits behind the dead letter runs without it",
		func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.LaneResult, error) {
			return ops.UnblockLane(ctx, conn, args[0], args[1], job, by)
		})
}

func newLanesPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy QUEUE LANE block|park|skip --reason TEXT",
		Short: "Set what a lane does when the job that has the turn becomes a dead letter",
		Long: `Sets what a lane does from now on; a dead letter that blocks it already stays where it is. The lane is kept, also without a
job. Who and why go to pawl.audit.`,
		Example: "  pawl lanes policy orders account-17 park --reason 'order matters less than delay here'",
	}
	return laneChange(cmd, 3, "", func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.LaneResult, error) {
		return ops.SetLanePolicy(ctx, conn, args[0], args[1], args[2], by)
	})
}

type laneVerb func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.LaneResult, error)

// laneChange makes a command of a verb that takes so many arguments, the first two of them a queue and a lane.
func laneChange(cmd *cobra.Command, arguments int, warning string, do laneVerb) *cobra.Command {
	var by ops.By
	var yes *bool
	addByFlags(cmd, &by)
	if warning != "" {
		yes = cmd.Flags().Bool("yes", false, "do not ask; required where nobody can be asked")
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != arguments {
			return misused(cmd, fmt.Sprintf("it takes %d arguments, not %d", arguments, len(args)), "as in: "+cmd.UseLine())
		}
		if err := checkBy(cmd, &by); err != nil {
			return err
		}
		what := fmt.Sprintf("%s lane %s of queue %s", cmd.Name(), args[1], args[0])
		ask := yes != nil && !*yes
		if ask && !mayAsk(cmd) {
			return misused(cmd, fmt.Sprintf("this would %s: %s", what, warning), "add --yes")
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			if ask && !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question(conn, what, warning)) {
				return failed(cmd, errors.New("not agreed to; nothing changed"), "answer y, or add --yes")
			}
			r, err := do(ctx, conn, args, by)
			var pg *pgconn.PgError
			if pawl.CodeOf(err) == "55P03" && errors.As(err, &pg) {
				return failed(cmd, errors.New("the lane is locked by an open transaction, most likely one that enqueues into it"), "ask again when that has ended")
			}
			if err != nil {
				return err
			}
			if err := printLaneResult(cmd.OutOrStdout(), args[1], r, *asJSON); err != nil || r.Changed() {
				return err
			}
			return failed(cmd, errors.New(whyNot(args, r)), hintOf(r))
		})
	}
	return cmd
}

func printLaneResult(w io.Writer, lane string, r ops.LaneResult, asJSON bool) (err error) {
	switch {
	case asJSON:
		return printJSON(w, laneResultJSON{string(r.Outcome), given(r.Job), given(string(r.Was)), given(r.Policy), given(r.Hint)})
	case r.Outcome == ops.Unblocked:
		_, err = fmt.Fprintf(w, "lane %s unblocked: job %d has given up its turn\n", visible(lane), r.Job)
	case r.Outcome == ops.PolicyChanged:
		_, err = fmt.Fprintf(w, "lane %s changed (was %s)\n", visible(lane), r.Policy)
	}
	return err
}

func whyNot(args []string, r ops.LaneResult) string {
	switch r.Outcome {
	case ops.Idle:
		return fmt.Sprintf("nothing blocks lane %s", args[1])
	case ops.Refused:
		return fmt.Sprintf("job %d has the turn and is %s", r.Job, r.Was)
	}
	return fmt.Sprintf("there is no lane %s in queue %s", args[1], args[0])
}

func hintOf(r ops.LaneResult) string {
	if r.Hint == "" {
		return "see: pawl lanes list --blocked"
	}
	return r.Hint
}

type lanesJSON struct {
	Lanes     []laneJSON `json:"lanes"`
	NextAfter *int64     `json:"next_after"` // for --after; null: that was all
}

type laneJSON struct {
	ID         int64      `json:"id"`
	Queue      string     `json:"queue"`
	Name       string     `json:"name"`
	Policy     string     `json:"policy"`
	Head       *int64     `json:"head"` // null: nobody has the turn
	HeadStatus *string    `json:"head_status"`
	Waiting    int        `json:"waiting"`
	Oldest     *time.Time `json:"oldest"` // null: nobody waits
}

func laneToJSON(l ops.Lane) laneJSON {
	return laneJSON{ID: l.ID, Queue: l.Queue, Name: l.Name, Policy: l.Policy, Head: given(l.Head),
		HeadStatus: given(string(l.HeadStatus)), Waiting: l.Waiting, Oldest: given(l.Oldest.UTC())}
}

type laneResultJSON struct {
	Outcome string  `json:"outcome"` // unblocked, changed; idle, refused, absent
	Job     *int64  `json:"job"`     // that has, or had, the turn
	Was     *string `json:"was"`     // the status of that job, if refused
	Policy  *string `json:"policy"`  // what it was, if changed
	Hint    *string `json:"hint"`    // the next step, if nothing changed
}
