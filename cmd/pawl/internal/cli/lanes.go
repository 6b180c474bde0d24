package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func newLanes() *cobra.Command {
	cmd := group("lanes", "Look at lanes, unblock them, and set what they do on a dead letter")
	cmd.Long = `Jobs of one lane of a queue run one at a time, in order. If the job that is next becomes a dead letter, the lane's policy
decides:

  block   the lane waits until you retry or discard the job, or unblock the lane
  park    the lane goes on; a retry brings the job back at its old position
  skip    the lane goes on; a retry runs the job outside of it`
	cmd.Example = `  pawl lanes list --blocked
  pawl dlq retry 17 --reason 'the stock service is back'      # the head of a blocked lane: keeps the order
  pawl lanes unblock orders account-17 --job 17 --reason 'booked by hand' --yes
  pawl lanes policy orders account-17 park --reason 'order matters less than delay here'`
	cmd.AddCommand(newLanesList())
	addVerbs(cmd, operator.Lanes)
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
	flags.BoolVar(&s.Blocked, "blocked", false, "only those that wait for your decision")
	return list[ops.Lane]{name: "lanes", row: laneCells, flag: "queue", named: &s.Queue,
		heading: []string{"ID", "QUEUE", "LANE", "POLICY", "HEAD", "STATUS", "WAITING", "OLDEST"},
		read:    func() pager[ops.Lane] { return s.List },
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
