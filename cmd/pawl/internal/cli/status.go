package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show everything at one look: queues, workers, consumers, events, what needs a verdict, old snapshots",
		Args:  noArgs,
		Long: `Shows each queue that has jobs, each worker, each consumer of deliveries, how far events are behind, and what waits for somebody. It says how things are, not
whether that is well: see pawl doctor. It reads the whole of jobs, commands and effects.

  DUE      may be claimed now; OLDEST: how long the first of them has been
  LATER    wait for their time      WAITING  for their turn in a lane
  DEAD     dead letters: pawl dlq   BLOCKED  lanes that stand behind one: pawl lanes list --blocked

  STATE       alive; silent: its lease is over; gone: its process has ended, its presence lock is free
  REMEMBERS   how long deliveries of a consumer are remembered; REDELIVERY: how long after it was sent a message may come`,
		Example: "  pawl status\n  watch -n 5 pawl status\n  pawl status --json | jq '.queues[] | select(.dead > 0)'",
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			o, err := ops.Look(ctx, conn)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), overviewToJSON(o))
			}
			return printOverview(cmd, o)
		})
	}
	return cmd
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
		name := cell(q.Queue, nameWidth)
		if q.Mode != ops.QueueRunning {
			name += " (" + string(q.Mode) + ")"
		}
		queues = append(queues, []string{name, strconv.Itoa(q.Due), since(q.DueSince), strconv.Itoa(q.Later), strconv.Itoa(q.Waiting),
			strconv.Itoa(q.Processing), strconv.Itoa(q.Dead), strconv.Itoa(q.Unknown), strconv.Itoa(q.Cancelled), strconv.Itoa(q.LanesBlocked)})
	}
	for _, w := range o.Workers {
		workers = append(workers, []string{strconv.FormatInt(w.ID, 10), cell(w.Name, nameWidth), stateOf(w), since(w.SeenAt), strconv.Itoa(w.Held), onOff(w.Present)})
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
		{"no jobs", []string{"QUEUE", "DUE", "OLDEST", "LATER", "WAITING", "PROCESSING", "DEAD", "UNKNOWN", "CANCELLED", "BLOCKED"}, queues},
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
		snapshot = fmt.Sprintf("%s old, %d transactions", span(o.ReadAt.Sub(o.OldestSnapshot)), o.XminAge)
	}
	_, err := fmt.Fprintf(out, "unknown commands %d, stale commands %d, unknown effects %d; oldest snapshot: %s\n",
		o.UnknownCommands, o.StaleCommands, o.UnknownEffects, snapshot)
	return err
}

// stateOf is how a worker is.
func stateOf(w ops.Worker) string {
	switch {
	case w.Gone:
		return "gone"
	case !w.Alive:
		return "silent"
	}
	return "alive"
}

// orUnlimited is a span of time, of which 0 has a meaning of its own.
func orUnlimited(d time.Duration, zero string) string {
	if d == 0 {
		return zero
	}
	return span(d)
}

type overviewJSON struct {
	Queues          []backlogJSON   `json:"queues"`
	Workers         []workerJSON    `json:"workers"`
	Consumers       []consumerJSON  `json:"consumers"`
	Outbox          []outboxLagJSON `json:"outbox"`
	UnknownCommands int             `json:"unknown_commands"`
	StaleCommands   int             `json:"stale_commands"`
	UnknownEffects  int             `json:"unknown_effects"`
	OldestSnapshot  *time.Time      `json:"oldest_snapshot"` // null: none, or not this login's to see
	XminAge         int64           `json:"xmin_age"`        // in transactions
	ReadAt          time.Time       `json:"read_at"`
}

type backlogJSON struct {
	Queue        string     `json:"queue"`
	Due          int        `json:"due"`
	DueSince     *time.Time `json:"due_since"`
	Later        int        `json:"later"`
	Waiting      int        `json:"waiting"`
	Processing   int        `json:"processing"`
	Dead         int        `json:"dead"`
	Unknown      int        `json:"unknown"`
	Cancelled    int        `json:"cancelled"`
	LanesBlocked int        `json:"lanes_blocked"`
	Mode         string     `json:"mode"`
}

type workerJSON struct {
	ID             int64     `json:"id"`
	Name           string    `json:"name"`
	Alive          bool      `json:"alive"` // its lease is not over
	State          string    `json:"state"` // alive, silent: not alive, gone: its process has ended
	SeenAt         time.Time `json:"seen_at"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
	Presence       bool      `json:"presence"`
	Jobs           int       `json:"jobs"`
}

type consumerJSON struct {
	Name         string    `json:"name"`
	RemembersMS  int64     `json:"remembers_ms"`  // 0: for ever
	RedeliveryMS int64     `json:"redelivery_ms"` // 0: nobody knows
	SeenAt       time.Time `json:"seen_at"`
}

func overviewToJSON(o ops.Overview) overviewJSON {
	backlog := func(q ops.Backlog) backlogJSON {
		return backlogJSON{q.Queue, q.Due, given(q.DueSince.UTC()), q.Later, q.Waiting, q.Processing, q.Dead, q.Unknown, q.Cancelled, q.LanesBlocked, string(q.Mode)}
	}
	worker := func(w ops.Worker) workerJSON {
		return workerJSON{w.ID, w.Name, w.Alive, stateOf(w), w.SeenAt.UTC(), w.LeaseExpiresAt.UTC(), w.Present, w.Held}
	}
	consumer := func(c ops.Consumer) consumerJSON {
		return consumerJSON{c.Name, c.Remembers.Milliseconds(), c.Redelivery.Milliseconds(), c.SeenAt.UTC()}
	}
	return overviewJSON{each(o.Queues, backlog), each(o.Workers, worker), each(o.Consumers, consumer), each(o.Outbox, outboxLagToJSON), o.UnknownCommands, o.StaleCommands,
		o.UnknownEffects, given(o.OldestSnapshot.UTC()), o.XminAge, o.ReadAt.UTC()}
}
