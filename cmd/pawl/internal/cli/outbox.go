package cli

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

func newOutbox() *cobra.Command {
	cmd := group("outbox", "Look at events that are not published yet")
	cmd.Long = `An event is a job of queue outbox/SINK, and its aggregate a lane of that queue: what changes jobs and lanes changes events.

  pawl jobs show JOB          an event with its errors
  pawl dlq retry JOB          publish a dead letter after all, in its place
  pawl dlq discard JOB        give it up
  pawl lanes unblock ...      publish what waits behind it`
	cmd.Example = `  pawl outbox lag
  pawl outbox heads --status dead_letter
  pawl outbox list --sink billing --type OrderPlaced --json | jq -r '.events[].event_id'
  pawl lanes unblock outbox/billing 5:order2:17 --job 17 --reason 'told them by hand' --yes`
	cmd.AddCommand(newOutboxList(), newOutboxLag(), newOutboxHeads())
	return cmd
}

// addOutboxFlags adds the flags that select events, and returns the check of what was given.
func addOutboxFlags(cmd *cobra.Command, f *ops.OutboxFilter) (check func() error) {
	var status string
	flags := cmd.Flags()
	flags.StringVar(&f.Sink, "sink", "", "only of this sink")
	flags.StringVar(&f.EventType, "type", "", "only of this event type")
	flags.StringVar(&status, "status", "", "only with this status: pending, waiting, processing, dead_letter, cancelled")
	flags.IntVar(&f.Limit, "limit", 50, "events at most, 1 to 1000")
	return func() error {
		f.Status = ops.Status(status)
		return cmp.Or(checkLimit(cmd, f.Limit), checkAfter(cmd, f.After), checkStatuses(cmd, ops.Statuses(), f.Status))
	}
}

func newOutboxList() *cobra.Command {
	var f ops.OutboxFilter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List events that are not published yet, oldest first",
		Args:    noArgs,
		Example: "  pawl outbox list --sink billing --status dead_letter\n  pawl outbox list --after 1200 --limit 200",
	}
	check := addOutboxFlags(cmd, &f)
	cmd.Flags().Int64Var(&f.After, "after", 0, "only job ids above this one: the last of the page before")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := check(); err != nil {
			return err
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			events, err := ops.OutboxEvents(ctx, conn, f)
			if err != nil {
				return err
			}
			var next *int64
			if len(events) == f.Limit {
				next = &events[len(events)-1].JobID
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), outboxJSON{each(events, outboxEventToJSON), next})
			}
			return printOutbox(cmd, events, next)
		})
	}
	return cmd
}

func printOutbox(cmd *cobra.Command, events []ops.OutboxEvent, next *int64) error {
	if len(events) == 0 {
		progress(cmd)("no events")
		return nil
	}
	rows := make([][]string, len(events))
	for i, e := range events {
		rows[i] = append(outboxCells(e), cell(e.LastError, errorWidth))
	}
	if err := printTable(cmd.OutOrStdout(), []string{"JOB", "SINK", "TYPE", "AGGREGATE", "STATUS", "ATTEMPTS", "AGE", "ERROR"}, rows); err != nil {
		return err
	}
	sayMore(cmd, next)
	return nil
}

// outboxCells are the cells that lists of events share.
func outboxCells(e ops.OutboxEvent) []string {
	aggregate := "-"
	if e.AggregateID != "" {
		aggregate = e.AggregateType + "/" + e.AggregateID
	}
	return []string{strconv.FormatInt(e.JobID, 10), cell(e.Sink, nameWidth), cell(e.EventType, nameWidth), cell(aggregate, nameWidth),
		cell(string(e.Status), nameWidth), strconv.Itoa(e.Attempts), span(e.ReadAt.Sub(e.CreatedAt))}
}

func newOutboxLag() *cobra.Command {
	var sink string
	cmd := &cobra.Command{
		Use:     "lag",
		Short:   "Show how far each sink is behind, by event type",
		Long:    "Counts all events that are not published yet. BEHIND is the age of the oldest one that is to be published.",
		Args:    noArgs,
		Example: "  pawl outbox lag\n  pawl outbox lag --sink billing --json | jq -r '.lags[].behind_seconds'",
	}
	cmd.Flags().StringVar(&sink, "sink", "", "only of this sink")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			lags, err := ops.OutboxLags(ctx, conn, sink)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), outboxLagsJSON{each(lags, outboxLagToJSON)})
			}
			if len(lags) == 0 {
				progress(cmd)("nothing is behind")
				return nil
			}
			rows := make([][]string, len(lags))
			for i, l := range lags {
				behind := "-"
				if l.Pending > 0 {
					behind = span(l.Behind())
				}
				rows[i] = []string{cell(l.Sink, nameWidth), cell(l.EventType, nameWidth), strconv.Itoa(l.Pending), strconv.Itoa(l.Dead), behind}
			}
			return printTable(cmd.OutOrStdout(), []string{"SINK", "TYPE", "PENDING", "DEAD", "BEHIND"}, rows)
		})
	}
	return cmd
}

func newOutboxHeads() *cobra.Command {
	var f ops.OutboxFilter
	cmd := &cobra.Command{
		Use:   "heads",
		Short: "List the event that each aggregate waits for, oldest first",
		Long: `The head of an aggregate is its first event that is not published; those behind it wait. A head that is a dead letter blocks its
aggregate, if the policy is block, until somebody retries or discards it, or unblocks the lane.`,
		Args:    noArgs,
		Example: "  pawl outbox heads --status dead_letter\n  pawl outbox heads --sink billing --limit 10 --json",
	}
	check := addOutboxFlags(cmd, &f)
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := check(); err != nil {
			return err
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			heads, err := ops.OutboxHeads(ctx, conn, f)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), outboxHeadsJSON{each(heads, outboxHeadToJSON)})
			}
			if len(heads) == 0 {
				progress(cmd)("no aggregate waits")
				return nil
			}
			rows := make([][]string, len(heads))
			for i, h := range heads {
				rows[i] = append(outboxCells(h.OutboxEvent), strconv.Itoa(h.Waiting), h.Policy, cell(h.Lane, nameWidth))
			}
			return printTable(cmd.OutOrStdout(), []string{"JOB", "SINK", "TYPE", "AGGREGATE", "STATUS", "ATTEMPTS", "AGE", "WAITING", "POLICY", "LANE"}, rows)
		})
	}
	return cmd
}

type outboxJSON struct {
	Events    []outboxEventJSON `json:"events"`
	NextAfter *int64            `json:"next_after"` // for --after; null: that was all
}

type outboxEventJSON struct {
	JobID         int64     `json:"job_id"`
	Sink          string    `json:"sink"`
	EventID       string    `json:"event_id"`
	EventType     string    `json:"event_type"`
	AggregateType *string   `json:"aggregate_type"` // null: no order
	AggregateID   *string   `json:"aggregate_id"`
	Status        string    `json:"status"`
	AttemptCount  int       `json:"attempt_count"`
	LastError     *string   `json:"last_error"`
	CreatedAt     time.Time `json:"created_at"`
}

func outboxEventToJSON(e ops.OutboxEvent) outboxEventJSON {
	return outboxEventJSON{JobID: e.JobID, Sink: e.Sink, EventID: e.EventID, EventType: e.EventType, AggregateType: given(e.AggregateType),
		AggregateID: given(e.AggregateID), Status: string(e.Status), AttemptCount: e.Attempts, LastError: given(e.LastError),
		CreatedAt: e.CreatedAt.UTC()}
}

type outboxLagsJSON struct {
	Lags []outboxLagJSON `json:"lags"`
}

type outboxLagJSON struct {
	Sink          string     `json:"sink"`
	EventType     string     `json:"event_type"`
	Pending       int        `json:"pending"`
	Dead          int        `json:"dead"`
	Oldest        *time.Time `json:"oldest"` // of those pending; null: none
	BehindSeconds float64    `json:"behind_seconds"`
}

func outboxLagToJSON(l ops.OutboxLag) outboxLagJSON {
	j := outboxLagJSON{Sink: l.Sink, EventType: l.EventType, Pending: l.Pending, Dead: l.Dead, BehindSeconds: l.Behind().Seconds()}
	if !l.Oldest.IsZero() {
		j.Oldest = given(l.Oldest.UTC())
	}
	return j
}

type outboxHeadsJSON struct {
	Heads []outboxHeadJSON `json:"heads"`
}

type outboxHeadJSON struct {
	outboxEventJSON
	Lane    string `json:"lane"`
	Policy  string `json:"policy"`
	Waiting int    `json:"waiting"`
}

func outboxHeadToJSON(h ops.OutboxHead) outboxHeadJSON {
	return outboxHeadJSON{outboxEventToJSON(h.OutboxEvent), h.Lane, h.Policy, h.Waiting}
}
