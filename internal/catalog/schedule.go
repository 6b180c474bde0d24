package catalog

import (
	"context"
	"time"
)

const schedules = `(
  select s.*, coalesce((s.options ->> 'priority')::int, 2) as priority, coalesce((s.options ->> 'max_attempts')::int, 25) as max_attempts,
         s.options ->> 'lane' as lane
    from pawl_v1.schedules as s
  ) as r`

// Schedules reads pawl_v1.schedules, ordered by name.
func Schedules[T any](ctx context.Context, db DB, p Page) ([]T, error) {
	return readPage[T](ctx, db, "schedule.list", &query{from: schedules}, p, key{"name", "text"})
}

// Schedule reads one schedule. It returns no row if the schedule does not exist.
func Schedule[T any](ctx context.Context, db DB, name string) ([]T, error) {
	return lookWhole[T](ctx, db, "schedule.get", schedules+" where r.name = $1::text", name)
}

// A ScheduleRow holds the columns that a keeper needs.
type ScheduleRow struct {
	Name     string     `json:"name"`
	Cron     *string    `json:"cron"`
	TimeZone *string    `json:"time_zone"`
	Missed   string     `json:"missed"`
	NextAt   *time.Time `json:"next_at"`
	SinceAt  time.Time  `json:"since_at"`
	Queue    string     `json:"queue"`
	Fence    int64      `json:"fence"`
	ReadAt   time.Time  `json:"read_at"` // the database's clock
}

// ScheduleNext reads the schedules that tick next, soonest first. Set cron only if the caller can
// evaluate cron expressions.
func ScheduleNext(ctx context.Context, db DB, cron bool, except []string, limit int) ([]ScheduleRow, error) {
	return lookRows[ScheduleRow](ctx, db, "schedule.next", `pawl_v1.schedules as r
 where not r.paused
   and (r.cron is null or $1)
   and r.name <> all (coalesce($2::text[], '{}'))
 order by r.next_at nulls first
 limit $3`, cron, except, limit)
}
