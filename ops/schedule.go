package ops

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Schedule enqueues a job again and again; see package schedule.
type Schedule struct {
	Name          string        `json:"name"`
	Cron          string        `json:"cron,omitzero"` // with TimeZone; or
	TimeZone      string        `json:"time_zone,omitzero"`
	Every         time.Duration `json:"-" col:"every_ms"` // an interval
	Missed        string        `json:"missed"`           // what is enqueued after an outage: "last" or "all" of what was missed
	Paused        bool          `json:"paused"`
	NextAt        time.Time     `json:"next_at,omitzero"` // zero: no keeper that reads cron has looked yet
	LastAt        time.Time     `json:"last_at,omitzero"` // the last tick that was enqueued; zero: none
	Queue         string        `json:"queue"`
	Kind          string        `json:"kind"`
	Priority      int           `json:"priority"`
	MaxAttempts   int           `json:"max_attempts"`
	Lane          string        `json:"lane,omitzero"`
	PayloadOctets int           `json:"payload_octets"`
	CreatedAt     time.Time     `json:"created_at"`
	ReadAt        time.Time     `json:"read_at"` // the database's clock at the reading

	Changes []Change `json:"changes,omitzero" col:"-"` // by hand: the newest 100, oldest first; read by Get only
}

// Ref names the schedule.
func (s Schedule) Ref() ScheduleRef { return ScheduleRef{Name: s.Name} }

// Overdue is how long the next tick is late. If it is more than a second or two, no keeper runs, or none that reads cron.
func (s Schedule) Overdue() time.Duration {
	if s.Paused || s.NextAt.IsZero() {
		return 0
	}
	return max(0, s.ReadAt.Sub(s.NextAt))
}

// MarshalJSON writes Every as every_ms.
func (s Schedule) MarshalJSON() ([]byte, error) {
	type plain Schedule
	return json.Marshal(struct {
		plain
		EveryMS int64 `json:"every_ms,omitzero"`
	}{plain(s), s.Every.Milliseconds()})
}

// Schedules selects schedules. The zero value selects all.
type Schedules struct {
	After string // only those behind this one: [Page.Next] of the page before
	Limit int    // default 50, at most 1000
}

// List returns schedules in the order of their names, by octets.
//
// Errors: [pawl.ErrArgumentInvalid].
func (s Schedules) List(ctx context.Context, db pawl.DB) (Page[Schedule], error) {
	page, err := pageOf("schedule.list", s.After, s.Limit, anyText)
	if err != nil {
		return Page[Schedule]{}, err
	}
	rows, err := catalog.Schedules[Schedule](ctx, db, page)
	return cut(rows, page, func(s Schedule) []string { return []string{s.Name} }), err
}

// A ScheduleRef names a schedule.
type ScheduleRef struct{ Name string }

// Get returns everything about the schedule.
//
// Errors: [pawl.ErrNotFound].
func (r ScheduleRef) Get(ctx context.Context, db pawl.DB) (Schedule, error) {
	rows, err := catalog.Schedule[Schedule](ctx, db, r.Name)
	s, err := only(rows, err, "schedule.get", "schedule "+r.Name)
	if err != nil {
		return s, err
	}
	s.Changes, err = r.Changes(ctx, db)
	return s, err
}

// Changes returns what was done with the schedule by hand: the newest 100 records, oldest first. It knows schedules that were deleted, too.
func (r ScheduleRef) Changes(ctx context.Context, db pawl.DB) ([]Change, error) {
	return changes(ctx, db, "schedule", r.Name)
}

// Pause stops the schedule: it enqueues nothing until it is resumed, also what is due already. Jobs that it has enqueued stay. [Unchanged]: it
// was paused already.
//
// Errors: [pawl.ErrArgumentInvalid]; a [pawl.Retryable] one if an open transaction has the schedule for more than 2 s.
func (r ScheduleRef) Pause(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.operate(ctx, db, "pause", by)
}

// Resume lets the schedule go on, with its next tick from now on: what would have ticked meanwhile is dropped.
//
// Errors: as of Pause.
func (r ScheduleRef) Resume(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.operate(ctx, db, "resume", by)
}

// Delete deletes the schedule. Jobs that it has enqueued stay. A program that still puts it makes it anew when it
// starts, and with a FirstAt in the past it is due again: pause it instead.
//
// Errors: as of Pause.
func (r ScheduleRef) Delete(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.operate(ctx, db, "delete", by)
}

// RunNow enqueues a job of the schedule, paused or not, beside its plan, which stays as it is. Called twice it enqueues two.
//
// Errors: as of Pause.
func (r ScheduleRef) RunNow(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return by.once(ctx, db, "schedule.run_now", func(db pawl.DB) (Result, error) {
		outcome, job, err := contract.ScheduleRunNow(ctx, db, r.Name, by.Actor, by.Reason)
		if by.dryRun {
			job = 0 // it was taken back
		}
		return r.result(outcome, job), err
	})
}

func (r ScheduleRef) operate(ctx context.Context, db pawl.DB, verb string, by By) (Result, error) {
	return by.once(ctx, db, "schedule."+verb, func(db pawl.DB) (Result, error) {
		outcome, err := contract.ScheduleOperate(ctx, db, verb, r.Name, by.Actor, by.Reason)
		return r.result(outcome, 0), err
	})
}

func (r ScheduleRef) result(outcome string, job int64) Result {
	result := Result{Outcome: Outcome(outcome), JobID: job}
	switch result.Outcome {
	case Absent:
		result.Hint = "list the schedules"
	case Unchanged:
		result.Hint = "it was so already"
	}
	return result
}
