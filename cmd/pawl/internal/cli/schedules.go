package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

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
	var f ops.ScheduleFilter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List schedules, by name",
		Args:    noArgs,
		Example: "  pawl schedules list\n  pawl schedules list --after nightly-report --limit 200\n  pawl schedules list --json | jq -r '.schedules[] | select(.paused).name'",
	}
	flags := cmd.Flags()
	flags.IntVar(&f.Limit, "limit", 50, "schedules at most, 1 to 1000")
	flags.StringVar(&f.After, "after", "", "only names behind this one: the last of the page before")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkLimit(cmd, f.Limit); err != nil {
			return err
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			schedules, err := ops.Schedules(ctx, conn, f)
			if err != nil {
				return err
			}
			var next *string
			if len(schedules) == f.Limit {
				next = &schedules[len(schedules)-1].Name
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), schedulesJSON{each(schedules, scheduleToJSON), next})
			}
			return printSchedules(cmd, schedules, next)
		})
	}
	return cmd
}

func printSchedules(cmd *cobra.Command, schedules []ops.Schedule, next *string) error {
	if len(schedules) == 0 {
		progress(cmd)("no schedules")
		return nil
	}
	rows := make([][]string, len(schedules))
	for i, s := range schedules {
		last := "-"
		if !s.LastAt.IsZero() {
			last = span(s.ReadAt.Sub(s.LastAt)) + " ago"
		}
		rows[i] = []string{cell(s.Name, nameWidth), cell(planOf(s), nameWidth), nextTick(s), last, s.Missed, cell(s.Queue, nameWidth), cell(s.Kind, nameWidth)}
	}
	if err := printTable(cmd.OutOrStdout(), []string{"SCHEDULE", "PLAN", "NEXT", "LAST", "MISSED", "QUEUE", "KIND"}, rows); err != nil {
		return err
	}
	if next != nil {
		progress(cmd)("there may be more: add --after " + visible(*next))
	}
	return nil
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
	return scheduleVerb("paused already", "", ops.PauseSchedule).on(&cobra.Command{
		Use:     "pause NAME --reason TEXT",
		Short:   "Enqueue nothing until it is resumed",
		Long:    `Stops a schedule: nothing is enqueued until it is resumed, also what is due already. Jobs that it has enqueued stay. Who and why go to pawl.audit.`,
		Example: "  pawl schedules pause nightly-report --reason 'the warehouse is being moved'",
	})
}

func newSchedulesResume() *cobra.Command {
	return scheduleVerb("not paused", "", ops.ResumeSchedule).on(&cobra.Command{
		Use:   "resume NAME --reason TEXT",
		Short: "Go on with the next tick",
		Long: `Lets a schedule go on with its next tick from now on. What would have ticked meanwhile is dropped: see pawl schedules run-now. Who and
why go to pawl.audit.`,
		Example: "  pawl schedules resume nightly-report --reason 'it has moved'",
	})
}

func newSchedulesRunNow() *cobra.Command {
	return scheduleVerb("", "a job is enqueued at once, beside the plan", ops.RunScheduleNow).on(&cobra.Command{
		Use:   "run-now NAME --reason TEXT",
		Short: "Enqueue a job now, beside the plan",
		Long: `Enqueues a job of a schedule now, paused or not. Its plan stays as it is. Called twice it enqueues two. Who and why go to
pawl.audit.`,
		Example: "  pawl schedules run-now nightly-report --reason 'yesterday is missing' --yes",
	})
}

func newSchedulesDelete() *cobra.Command {
	return scheduleVerb("", "it enqueues nothing any more", ops.DeleteSchedule).on(&cobra.Command{
		Use:   "delete NAME --reason TEXT",
		Short: "Delete a schedule",
		Long: `Deletes a schedule. Jobs that it has enqueued stay. A program that still puts it makes it anew when it starts: take it out there
first, or pause the schedule. Who and why go to pawl.audit.`,
		Example: "  pawl schedules delete nightly-report --reason 'replaced by weekly-report' --yes",
	})
}

// scheduleVerb is a verb whose argument is a schedule; unchanged is what it says of one that was so already.
func scheduleVerb(unchanged, warning string, do func(ctx context.Context, db ops.DB, name string, by ops.By) (ops.ScheduleResult, error)) verb {
	return verb{arguments: 1, warning: warning,
		what:   func(args []string) string { return "schedule " + args[0] },
		locked: "the schedule is locked by an open transaction",
		do: func(ctx context.Context, conn *pgx.Conn, args []string, by ops.By) (answer, error) {
			r, err := do(ctx, conn, args[0], by)
			a := answer{json: scheduleResultJSON{string(r.Outcome), given(r.Job)}}
			switch r.Outcome {
			case ops.Absent:
				a.why, a.next = "there is no schedule "+args[0], "see: pawl schedules list"
			case ops.Unchanged:
				a.done = fmt.Sprintf("schedule %s is %s", visible(args[0]), unchanged)
			case ops.ScheduleRan:
				a.done = fmt.Sprintf("schedule %s: job %d enqueued", visible(args[0]), r.Job)
			default:
				a.done = fmt.Sprintf("schedule %s %s", visible(args[0]), r.Outcome)
			}
			return a, err
		}}
}

type schedulesJSON struct {
	Schedules []scheduleJSON `json:"schedules"`
	NextAfter *string        `json:"next_after"` // for --after; null: that was all
}

type scheduleJSON struct {
	Name      string     `json:"name"`
	Cron      *string    `json:"cron"` // null: an interval
	TimeZone  *string    `json:"time_zone"`
	EveryMs   *int64     `json:"every_ms"` // null: a cron expression
	Missed    string     `json:"missed"`   // last, all
	Paused    bool       `json:"paused"`
	NextAt    *time.Time `json:"next_at"` // null: a keeper is to find it
	LastAt    *time.Time `json:"last_at"` // null: it has not ticked
	Queue     string     `json:"queue"`
	Kind      string     `json:"kind"`
	Lane      *string    `json:"lane"`
	CreatedAt time.Time  `json:"created_at"`
}

func scheduleToJSON(s ops.Schedule) scheduleJSON {
	return scheduleJSON{Name: s.Name, Cron: given(s.Cron), TimeZone: given(s.TimeZone), EveryMs: given(s.Every.Milliseconds()), Missed: s.Missed,
		Paused: s.Paused, NextAt: given(s.NextAt.UTC()), LastAt: given(s.LastAt.UTC()), Queue: s.Queue, Kind: s.Kind, Lane: given(s.Lane),
		CreatedAt: s.CreatedAt.UTC()}
}

type scheduleResultJSON struct {
	Outcome string `json:"outcome"` // paused, resumed, enqueued, deleted; unchanged, absent
	Job     *int64 `json:"job"`     // that run-now has enqueued
}
