package cli

import (
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

func newSchedules() *cobra.Command {
	cmd := group("schedules", "Look at schedules, pause and resume them, run one now, delete one")
	cmd.Long = `A schedule enqueues a job repeatedly: at an interval, or by a cron expression in a time zone. Programs create schedules. Keepers in
worker processes enqueue the due ones. If no keeper runs, a schedule stays due, and NEXT says how late it is.`
	cmd.Example = `  pawl schedules list
  pawl schedules pause nightly-report --reason 'the warehouse is being moved'
  pawl schedules resume nightly-report --reason 'it has moved'
  pawl schedules run-now nightly-report --reason 'yesterday is missing' --yes
  pawl schedules delete nightly-report --reason 'replaced by weekly-report' --yes`
	cmd.AddCommand(newSchedulesList())
	addVerbs(cmd, operator.Schedules)
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
		read:    func() pager[ops.Schedule] { return s.List },
	}.on(cmd, &s.Limit, &s.After)
}

func scheduleCells(s ops.Schedule) []string {
	last := "-"
	if !s.LastAt.IsZero() {
		last = span(s.ReadAt.Sub(s.LastAt)) + " ago"
	}
	return []string{cell(s.Name, nameWidth), cell(operator.Plan(s), nameWidth), nextTick(s), last, s.Missed, cell(s.Queue, nameWidth), cell(s.Kind, nameWidth)}
}

func nextTick(s ops.Schedule) string {
	switch {
	case s.Paused:
		return "paused"
	case s.NextAt.IsZero():
		return "-" // a keeper will compute it
	case s.NextAt.Before(s.ReadAt):
		return span(s.Overdue()) + " late"
	}
	return "in " + span(s.NextAt.Sub(s.ReadAt))
}
