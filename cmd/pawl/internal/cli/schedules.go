package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

func newSchedules() *cobra.Command {
	cmd := group("schedules", "Look at schedules, pause and resume them, run one now, delete one")
	cmd.Long = `A schedule enqueues a job again and again: at an interval, or by a cron expression in a time zone. Programs put them; keepers in
worker processes enqueue what is due. One that stays due has no keeper: NEXT then says how late it is.`
	cmd.Example = `  pawl schedules list
  pawl schedules pause nightly-report --reason 'the warehouse is being moved'
  pawl schedules resume nightly-report --reason 'it has moved'
  pawl schedules run-now nightly-report --reason 'yesterday is missing' --yes
  pawl schedules delete nightly-report --reason 'replaced by weekly-report' --yes`
	cmd.AddCommand(newSchedulesList(), newSchedulesPause(), newSchedulesResume(), newSchedulesRunNow(), newSchedulesDelete())
	return cmd
}

func newSchedulesList() *cobra.Command {
	var s ops.Schedules
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List schedules, by name",
		Example: "  pawl schedules list\n  pawl schedules list --after nightly-report --limit 200\n  pawl schedules list --json | jq -r '.schedules[] | select(.paused).name'",
	}
	return list[ops.Schedule]{name: "schedules", row: scheduleCells,
		heading: []string{"SCHEDULE", "PLAN", "NEXT", "LAST", "MISSED", "QUEUE", "KIND"},
		read:    func(ctx context.Context, conn *pgx.Conn) (ops.Page[ops.Schedule], error) { return s.List(ctx, conn) },
	}.on(cmd, &s.Limit, &s.After)
}

func scheduleCells(s ops.Schedule) []string {
	last := "-"
	if !s.LastAt.IsZero() {
		last = span(s.ReadAt.Sub(s.LastAt)) + " ago"
	}
	return []string{cell(s.Name, nameWidth), cell(planOf(s), nameWidth), nextTick(s), last, s.Missed, cell(s.Queue, nameWidth), cell(s.Kind, nameWidth)}
}

func planOf(s ops.Schedule) string {
	if s.Cron == "" {
		every := s.Every.String() // 1h0m0s
		if every = strings.Replace(every, "m0s", "m", 1); strings.HasSuffix(every, "h0m") {
			every = strings.TrimSuffix(every, "0m")
		}
		return "every " + every
	}
	return s.Cron + " " + s.TimeZone
}

func nextTick(s ops.Schedule) string {
	switch {
	case s.Paused:
		return "paused"
	case s.NextAt.IsZero():
		return "-" // a keeper is to find it
	case s.NextAt.Before(s.ReadAt):
		return span(s.Overdue()) + " late"
	}
	return "in " + span(s.NextAt.Sub(s.ReadAt))
}

func newSchedulesPause() *cobra.Command {
	return scheduleVerb("paused already", "", ops.ScheduleRef.Pause).on(&cobra.Command{
		Use:     "pause NAME --reason TEXT",
		Short:   "Enqueue nothing until it is resumed",
		Long:    `Stops a schedule: nothing is enqueued until it is resumed, also what is due already. Jobs that it has enqueued stay. Who and why go to pawl.audit.`,
		Example: "  pawl schedules pause nightly-report --reason 'the warehouse is being moved'",
	})
}

func newSchedulesResume() *cobra.Command {
	return scheduleVerb("not paused", "", ops.ScheduleRef.Resume).on(&cobra.Command{
		Use:   "resume NAME --reason TEXT",
		Short: "Go on with the next tick",
		Long: `Lets a schedule go on with its next tick from now on. What would have ticked meanwhile is dropped: see pawl schedules run-now. Who and
why go to pawl.audit.`,
		Example: "  pawl schedules resume nightly-report --reason 'it has moved'",
	})
}

func newSchedulesRunNow() *cobra.Command {
	return scheduleVerb("", "a job is enqueued at once, beside the plan", ops.ScheduleRef.RunNow).on(&cobra.Command{
		Use:   "run-now NAME --reason TEXT",
		Short: "Enqueue a job now, beside the plan",
		Long: `Enqueues a job of a schedule now, paused or not. Its plan stays as it is. Called twice it enqueues two. Who and why go to
pawl.audit.`,
		Example: "  pawl schedules run-now nightly-report --reason 'yesterday is missing' --yes",
	})
}

func newSchedulesDelete() *cobra.Command {
	return scheduleVerb("", "it enqueues nothing any more", ops.ScheduleRef.Delete).on(&cobra.Command{
		Use:   "delete NAME --reason TEXT",
		Short: "Delete a schedule",
		Long: `Deletes a schedule. Jobs that it has enqueued stay. A program that still puts it makes it anew when it starts, and with
a first tick in the past it is due again: take it out there first, or pause the schedule. Who and why go to pawl.audit.`,
		Example: "  pawl schedules delete nightly-report --reason 'replaced by weekly-report' --yes",
	})
}

// scheduleVerb is a verb whose argument is a schedule; unchanged is what it says of one that was so already.
func scheduleVerb(unchanged, warning string, do func(r ops.ScheduleRef, ctx context.Context, db pawl.DB, by ops.By) (ops.Result, error)) verb {
	return verb{arguments: 1, warning: warning,
		what:   func(args []string) string { return "schedule " + args[0] },
		locked: "the schedule is locked by an open transaction",
		do: func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (ops.Result, error) {
			return do(ops.ScheduleRef{Name: args[0]}, ctx, conn, by)
		},
		done: func(args []string, r ops.Result) string {
			switch r.Outcome {
			case ops.Unchanged:
				return fmt.Sprintf("schedule %s is %s", text.Visible(args[0]), unchanged)
			case ops.Enqueued:
				return fmt.Sprintf("schedule %s: job %s enqueued", text.Visible(args[0]), idCell(r.JobID))
			}
			return fmt.Sprintf("schedule %s %s", text.Visible(args[0]), r.Outcome)
		},
		why: func(args []string, _ ops.Result) (why, next string) {
			return "there is no schedule " + args[0], "see: pawl schedules list"
		}}
}
