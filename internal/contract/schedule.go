package contract

import (
	"context"
	"time"
)

// SchedulePutArgs are the arguments of schedule_put.
type SchedulePutArgs struct {
	Name, Queue, Kind     string
	Args                  []byte
	Every                 time.Duration // either Every or Cron
	Cron, TimeZone        string
	FirstAt               time.Time
	Missed                string
	Priority, MaxAttempts int
	Headers               map[string]any
	Lane, LanePolicy      string
}

// SchedulePutRow is the result of schedule_put.
type SchedulePutRow struct {
	Outcome string // "created", "changed", "unchanged"
	NextAt  *time.Time
}

// SchedulePut calls pawl_v1.schedule_put.
func SchedulePut(ctx context.Context, db DB, a SchedulePutArgs) (r SchedulePutRow, err error) {
	o := Options{}
	set(o, "every_ms", a.Every.Milliseconds())
	set(o, "cron", a.Cron)
	set(o, "time_zone", a.TimeZone)
	set(o, "missed", a.Missed)
	set(o, "priority", a.Priority)
	set(o, "max_attempts", a.MaxAttempts)
	set(o, "lane", a.Lane)
	set(o, "lane_policy", a.LanePolicy)
	if !a.FirstAt.IsZero() {
		o["first_at"] = a.FirstAt.Format(time.RFC3339Nano)
	}
	if len(a.Headers) > 0 {
		o["headers"] = a.Headers
	}
	err = one(ctx, db, "schedule.put", "select p.outcome, p.next_at from pawl_v1.schedule_put($1, $2, $3, $4, $5::pg_catalog.jsonb) as p",
		[]any{a.Name, a.Queue, a.Kind, octets(a.Args), o.exact()}, &r.Outcome, &r.NextAt)
	return r, err
}

// ScheduleTickRow is the result of schedule_tick.
type ScheduleTickRow struct {
	Outcome  string // "ticked", "superseded", "not_due", "absent"
	Enqueued int
	Skipped  int // missed ticks of an interval that were skipped
}

// ScheduleTick calls pawl_v1.schedule_tick. For an interval, ticks is nil and next is zero.
func ScheduleTick(ctx context.Context, db DB, name string, fence int64, ticks []time.Time, next time.Time) (r ScheduleTickRow, err error) {
	err = one(ctx, db, "schedule.tick",
		"select t.outcome, t.enqueued, coalesce((t.detail operator(pg_catalog.->>) 'skipped')::int, 0) from pawl_v1.schedule_tick($1, $2, $3, $4) as t",
		[]any{name, fence, ticks, given(next)}, &r.Outcome, &r.Enqueued, &r.Skipped)
	return r, err
}

// ScheduleOperate calls pawl_v1.schedule_pause, schedule_resume or schedule_delete. verb is the
// last word of that name.
func ScheduleOperate(ctx context.Context, db DB, verb, name, actor, reason string) (outcome string, err error) {
	err = one(ctx, db, "schedule."+verb, "select o.outcome from pawl_v1.schedule_"+verb+"($1, $2, $3) as o", []any{name, actor, reason}, &outcome)
	return outcome, err
}

// ScheduleRunNow calls pawl_v1.schedule_run_now.
func ScheduleRunNow(ctx context.Context, db DB, name, actor, reason string) (outcome string, job int64, err error) {
	err = one(ctx, db, "schedule.run_now", "select r.outcome, coalesce((r.detail operator(pg_catalog.->>) 'job')::bigint, 0) from pawl_v1.schedule_run_now($1, $2, $3) as r",
		[]any{name, actor, reason}, &outcome, &job)
	return outcome, job, err
}
