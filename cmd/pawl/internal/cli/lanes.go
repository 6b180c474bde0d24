package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newLanes() *cobra.Command {
	cmd := group("lanes", "Look at lanes, unblock them, and set what they do on a dead letter")
	cmd.Long = `Jobs of one lane of a queue run one at a time, in order. When the job that has the turn becomes a dead letter, the lane's
policy decides:

  block   the lane stands, until you retry or discard the job, or unblock the lane
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
	var s ops.Lanes
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List lanes, oldest first",
		Example: "  pawl lanes list --blocked\n  pawl lanes list --queue orders --after 1200 --limit 200\n  pawl lanes list --blocked --json | jq -r '.lanes[].head'",
	}
	flags := cmd.Flags()
	flags.StringVar(&s.Queue, "queue", "", "only of this queue")
	flags.BoolVar(&s.Blocked, "blocked", false, "only those that stand until you decide")
	return list[ops.Lane]{name: "lanes", row: laneCells,
		heading: []string{"ID", "QUEUE", "LANE", "POLICY", "HEAD", "STATUS", "WAITING", "OLDEST"},
		read:    func(ctx context.Context, conn *pgx.Conn) (ops.Page[ops.Lane], error) { return s.List(ctx, conn) },
	}.on(cmd, &s.Limit, &s.After)
}

func laneCells(l ops.Lane) []string {
	oldest := "-"
	if l.Waiting > 0 {
		oldest = span(l.ReadAt.Sub(l.Oldest))
	}
	return []string{strconv.FormatInt(l.ID, 10), cell(l.Queue, nameWidth), cell(l.Name, nameWidth), l.Policy, idCell(l.Head),
		cell(string(l.HeadStatus), nameWidth), strconv.Itoa(l.Waiting), oldest}
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
		func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
			return ops.LaneRef{Queue: args[0], Name: args[1], Head: job}.Unblock(ctx, conn, by)
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
	return laneVerb(3, "", func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
		return ops.LaneRef{Queue: args[0], Name: args[1]}.SetPolicy(ctx, conn, args[2], by)
	}).on(cmd)
}

// laneVerb is a verb whose first two arguments are a queue and a lane.
func laneVerb(arguments int, warning string, do func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error)) verb {
	return verb{arguments: arguments, warning: warning, do: do,
		what:   func(args []string) string { return fmt.Sprintf("lane %s of queue %s", args[1], args[0]) },
		locked: "the lane is locked by an open transaction, most likely one that enqueues into it",
		done: func(args []string, r ops.Result) string {
			if r.Outcome == ops.Unblocked {
				return fmt.Sprintf("lane %s unblocked: job %d has given up its turn", text.Visible(args[1]), r.JobID)
			}
			return fmt.Sprintf("lane %s changed (was %s)", text.Visible(args[1]), r.Was)
		},
		why: func(args []string, r ops.Result) (why, next string) {
			switch r.Outcome {
			case ops.Idle:
				return fmt.Sprintf("nothing blocks lane %s", args[1]), "see: pawl lanes list --blocked"
			case ops.Refused:
				return fmt.Sprintf("job %d has the turn and is %s", r.JobID, r.Was), ""
			}
			return fmt.Sprintf("there is no lane %s in queue %s", args[1], args[0]), ""
		}}
}
