package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

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
		if err := cmp.Or(checkLimit(cmd, f.Limit), checkAfter(cmd, f.After)); err != nil {
			return err
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
	sayMore(cmd, next)
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
	return laneVerb(2, "what waits behind the dead letter runs without it",
		func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.LaneResult, error) {
			return ops.UnblockLane(ctx, conn, args[0], args[1], job, by)
		}).on(cmd)
}

func newLanesPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy QUEUE LANE block|park|skip --reason TEXT",
		Short: "Set what a lane does when the job that has the turn becomes a dead letter",
		Long: `Sets what a lane does from now on; a dead letter that blocks it already stays where it is. The lane is kept, also without a
job. Who and why go to pawl.audit.`,
		Example: "  pawl lanes policy orders account-17 park --reason 'order matters less than delay here'",
	}
	return laneVerb(3, "", func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.LaneResult, error) {
		return ops.SetLanePolicy(ctx, conn, args[0], args[1], args[2], by)
	}).on(cmd)
}

// laneVerb is a verb whose first two arguments are a queue and a lane.
func laneVerb(arguments int, warning string, do func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.LaneResult, error)) verb {
	return verb{arguments: arguments, warning: warning,
		what:   func(args []string) string { return fmt.Sprintf("lane %s of queue %s", args[1], args[0]) },
		locked: "the lane is locked by an open transaction, most likely one that enqueues into it",
		do: func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (answer, error) {
			r, err := do(ctx, conn, args, by)
			a := answer{json: laneResultJSON{string(r.Outcome), given(r.Job), given(string(r.Was)), given(r.Policy), given(r.Hint)}}
			switch r.Outcome {
			case ops.Unblocked:
				a.done = fmt.Sprintf("lane %s unblocked: job %d has given up its turn", visible(args[1]), r.Job)
			case ops.PolicyChanged:
				a.done = fmt.Sprintf("lane %s changed (was %s)", visible(args[1]), r.Policy)
			default:
				a.why, a.next = whyNot(args, r), hintOf(r)
			}
			return a, err
		}}
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
