package cli

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

func newOutbox() *cobra.Command {
	cmd := group("outbox", "Look at events that are not published yet")
	cmd.Long = `An event is a job of queue outbox/SINK, and its aggregate is a lane of that queue. Commands for jobs and lanes work on events, too:

  pawl jobs show JOB          an event with its errors
  pawl dlq retry JOB          publish a dead letter, in its place
  pawl dlq discard JOB        give it up
  pawl lanes unblock ...      publish the events behind it`
	cmd.Example = `  pawl outbox lag
  pawl outbox heads --status dead_letter
  pawl outbox list --sink billing --type OrderPlaced --json | jq -r '.events[].event_id'
  pawl lanes unblock outbox/billing 5:order2:17 --job 17 --reason 'told them by hand' --yes`
	cmd.AddCommand(newOutboxList(), newOutboxLag(), newOutboxHeads())
	return cmd
}

func newOutboxList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List events that are not published yet, oldest first",
		Example: "  pawl outbox list --sink billing --status dead_letter\n  pawl outbox list --after 1200 --limit 200",
	}
	l := list[ops.OutboxEvent]{name: "events",
		heading: []string{"JOB", "SINK", "TYPE", "AGGREGATE", "STATUS", "ATTEMPTS", "AGE", "ERROR"},
		row:     func(e ops.OutboxEvent) []string { return append(outboxCells(e), cell(e.LastError, errorWidth)) }}
	return outboxList(cmd, l, ops.Outbox{})
}

// outboxList makes a list of events selected by sink, type and status.
func outboxList(cmd *cobra.Command, l list[ops.OutboxEvent], s ops.Outbox) *cobra.Command {
	flags := cmd.Flags()
	flags.StringVar(&s.Sink, "sink", "", "only of this sink")
	flags.StringVar(&s.EventType, "type", "", "only of this event type")
	l.check = addStatusFlag(cmd, &s.Statuses, ops.JobStatuses())
	l.read = func() pager[ops.OutboxEvent] { return s.List }
	l.flag, l.named = "sink", &s.Sink
	return l.on(cmd, &s.Limit, &s.After)
}

// outboxCells are the cells common to lists of events.
func outboxCells(e ops.OutboxEvent) []string {
	aggregate := "-"
	if e.AggregateID != "" {
		aggregate = e.AggregateType + "/" + e.AggregateID
	}
	return []string{strconv.FormatInt(e.JobID, 10), cell(e.Sink, nameWidth), cell(e.EventType, nameWidth), cell(aggregate, nameWidth),
		cell(string(e.Status), nameWidth), strconv.Itoa(e.Attempts), span(e.ReadAt.Sub(e.CreatedAt))}
}

func newOutboxHeads() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "heads",
		Short: "List the event that each aggregate waits for, oldest first",
		Long: `The head of an aggregate is its first event that is not published; those behind it wait. If the head is a dead letter and the policy
is block, the aggregate waits until you retry or discard the head, or unblock the lane.`,
		Example: "  pawl outbox heads --status dead_letter\n  pawl outbox heads --sink billing --limit 10 --json",
	}
	l := list[ops.OutboxEvent]{name: "heads", none: "no aggregate waits",
		heading: []string{"JOB", "SINK", "TYPE", "AGGREGATE", "STATUS", "ATTEMPTS", "AGE", "WAITING", "POLICY", "LANE"},
		row: func(e ops.OutboxEvent) []string {
			return append(outboxCells(e), strconv.Itoa(e.Waiting), e.Policy, cell(e.Lane, nameWidth))
		}}
	return outboxList(cmd, l, ops.Outbox{Heads: true})
}

func newOutboxLag() *cobra.Command {
	var s ops.Outbox
	cmd := &cobra.Command{
		Use:     "lag",
		Short:   "Show how far each sink is behind, by event type",
		Long:    "Counts all events that are not published yet. BEHIND is the age of the oldest one still to be published.",
		Args:    noArgs,
		Example: "  pawl outbox lag\n  pawl outbox lag --sink billing --json | jq -r '.lags[].behind_ms'",
	}
	cmd.Flags().StringVar(&s.Sink, "sink", "", "only of this sink")
	elsewhere := ""
	return report[[]ops.OutboxLag]{
		read: func(ctx context.Context, conn *pgx.Conn, _ []string) ([]ops.OutboxLag, error) {
			lags, err := s.Lag(ctx, conn)
			if err == nil && len(lags) == 0 {
				elsewhere, err = foundWith("sink", s.Sink, func(other string) (string, error) {
					lags, err := ops.Outbox{Sink: other}.Lag(ctx, conn)
					n := 0
					for _, l := range lags {
						n += l.Pending + l.Dead
					}
					return strconv.Itoa(n), err
				})
			}
			return lags, err
		},
		verdict: func(cmd *cobra.Command, _ []ops.OutboxLag) error {
			if elsewhere != "" {
				progress(cmd)(elsewhere)
			}
			return nil
		},
		json: func(lags []ops.OutboxLag) any { return map[string]any{"lags": lags} },
		print: func(cmd *cobra.Command, lags []ops.OutboxLag) error {
			if len(lags) == 0 {
				progress(cmd)("nothing is behind")
				return nil
			}
			return printTable(cmd.OutOrStdout(), []string{"SINK", "TYPE", "PENDING", "DEAD", "BEHIND"}, each(lags, lagCells))
		},
	}.on(cmd)
}

func lagCells(l ops.OutboxLag) []string {
	behind := "-"
	if l.Pending > 0 {
		behind = span(l.Behind())
	}
	return []string{cell(l.Sink, nameWidth), cell(l.EventType, nameWidth), strconv.Itoa(l.Pending), strconv.Itoa(l.Dead), behind}
}
