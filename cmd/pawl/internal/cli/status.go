package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show queues, workers, consumers, events and anything that needs a decision",
		Args:  noArgs,
		Long: `Shows each queue, worker and consumer of deliveries, how far events are behind, and what waits for a decision. It does not look for
problems: see pawl doctor. It reads all rows of jobs, commands and steps.

  DUE      may be claimed now; OLDEST: how long the first has been due
  LATER    wait for their time      WAITING  for their turn in a lane
  DEAD     dead letters: pawl dlq   BLOCKED  lanes that wait behind one: pawl lanes list --blocked

  STATE       alive; silent: its lease has expired; gone: its process has ended, its presence lock is free
  REMEMBERS   how long deliveries of a consumer are remembered; REDELIVERY: how long after its send a message may come`,
		Example: "  pawl status\n  watch -n 5 pawl status\n  pawl status --json | jq '.queues[] | select(.dead > 0)'",
	}
	return report[ops.Overview]{
		read: func(ctx context.Context, conn *pgx.Conn, _ []string) (ops.Overview, error) {
			return ops.Look(ctx, conn)
		},
		print: printOverview,
	}.on(cmd)
}

func printOverview(cmd *cobra.Command, o ops.Overview) error {
	out := cmd.OutOrStdout()
	since := func(at time.Time) string {
		if at.IsZero() {
			return "-"
		}
		return span(o.ReadAt.Sub(at))
	}
	var queues, workers, consumers, events [][]string
	for _, q := range o.Queues {
		name := cell(q.Name, nameWidth)
		if q.Mode != ops.QueueRunning {
			name += " (" + q.Mode + ")"
		}
		queues = append(queues, []string{name, strconv.Itoa(q.Due), since(q.DueSince), strconv.Itoa(q.Later), strconv.Itoa(q.Waiting),
			strconv.Itoa(q.Processing), strconv.Itoa(q.Dead), strconv.Itoa(q.Unknown), strconv.Itoa(q.Cancelled), strconv.Itoa(q.LanesBlocked)})
	}
	for _, w := range o.Workers {
		workers = append(workers, []string{strconv.FormatInt(w.ID, 10), cell(w.Name, nameWidth), w.State, since(w.SeenAt), strconv.Itoa(w.Held), onOff(w.Presence)})
	}
	for _, c := range o.Consumers {
		consumers = append(consumers, []string{cell(c.Name, nameWidth), orUnlimited(c.Remembers, "for ever"), orUnlimited(c.Redelivery, "-"), since(c.SeenAt)})
	}
	for _, l := range o.Outbox {
		events = append(events, []string{cell(l.Sink, nameWidth), cell(l.EventType, nameWidth), strconv.Itoa(l.Pending), strconv.Itoa(l.Dead), span(l.Behind())})
	}
	for _, t := range []struct {
		none    string
		heading []string
		rows    [][]string
	}{
		{"no queues", []string{"QUEUE", "DUE", "OLDEST", "LATER", "WAITING", "PROCESSING", "DEAD", "UNKNOWN", "CANCELLED", "BLOCKED"}, queues},
		{"no workers", []string{"WORKER", "NAME", "STATE", "SEEN", "JOBS", "PRESENCE"}, workers},
		{"no consumers", []string{"CONSUMER", "REMEMBERS", "REDELIVERY", "SEEN"}, consumers},
		{"no events", []string{"SINK", "EVENT", "PENDING", "DEAD", "BEHIND"}, events},
	} {
		if len(t.rows) == 0 {
			fmt.Fprintln(out, t.none)
		} else if err := printTable(out, t.heading, t.rows); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	snapshot := "none"
	if !o.OldestSnapshot.IsZero() {
		snapshot = fmt.Sprintf("%s old, %s", span(o.ReadAt.Sub(o.OldestSnapshot)), text.Plural(o.XminAge, "transaction", "transactions"))
	}
	_, err := fmt.Fprintf(out, "unknown commands %d, stale commands %d, unknown steps %d; oldest snapshot: %s\n",
		o.UnknownCommands, o.StaleCommands, o.UnknownSteps, snapshot)
	return err
}

// orUnlimited formats a duration; 0 has its own text.
func orUnlimited(d time.Duration, zero string) string {
	if d == 0 {
		return zero
	}
	return span(d)
}
