package ops

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Schedule enqueues a job repeatedly; see package schedule.
type Schedule struct {
	Name     string        `json:"name"`
	Cron     string        `json:"cron,omitzero"` // with TimeZone; or Every
	TimeZone string        `json:"time_zone,omitzero"`
	Every    time.Duration `json:"-" col:"every_ms"` // an interval
	// what is enqueued after an outage: the "last" missed tick, or "all"
	Missed string `json:"missed"`
	Paused bool   `json:"paused"`
	// zero: no keeper that reads cron has computed it yet
	NextAt time.Time `json:"next_at,omitzero"`
	// the last tick that was enqueued; zero: none
	LastAt        time.Time `json:"last_at,omitzero"`
	Queue         string    `json:"queue"`
	Kind          string    `json:"kind"`
	Priority      int       `json:"priority"`
	MaxAttempts   int       `json:"max_attempts"`
	Lane          string    `json:"lane,omitzero"`
	PayloadOctets int       `json:"payload_octets"`
	CreatedAt     time.Time `json:"created_at"`
	ReadAt        time.Time `json:"read_at"` // the database's clock when the row was read

	// by operators: the newest 100, oldest first; read by Get only
	Changes []Change `json:"changes,omitzero" col:"-"`
}

// Ref returns a reference to the schedule.
func (s Schedule) Ref() ScheduleRef { return ScheduleRef{Name: s.Name} }

// Overdue returns how late the next tick is. If it is more than a second or two, no keeper runs, or
// none that reads cron.
func (s Schedule) Overdue() time.Duration {
	if s.Paused || s.NextAt.IsZero() {
		return 0
	}
	return max(0, s.ReadAt.Sub(s.NextAt))
}

// MarshalJSON writes Every as every_ms.
func (s Schedule) MarshalJSON() ([]byte, error) {
	type alias Schedule
	return json.Marshal(struct {
		alias
		EveryMS int64 `json:"every_ms,omitzero"`
	}{alias(s), s.Every.Milliseconds()})
}

// Schedules selects schedules. The zero value selects all.
type Schedules struct {
	After string // only rows after this one: [Page.Next] of the previous page
	Limit int    // default 50, at most 1000
}

// List returns schedules ordered by name, compared by bytes.
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

// A ScheduleRef identifies a schedule.
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

// Changes returns the newest 100 audit records of the schedule, oldest first. It works for deleted
// schedules too.
func (r ScheduleRef) Changes(ctx context.Context, db pawl.DB) ([]Change, error) {
	return changes(ctx, db, "schedule", r.Name)
}

// Pause stops the schedule until it is resumed. Ticks that are due already are not enqueued either.
// Jobs that it has enqueued stay. Outcome [Unchanged]: it was paused already.
//
// Errors: [pawl.ErrArgumentInvalid]; a [pawl.Retryable] one if an open transaction holds the
// schedule for more than 2 s.
func (r ScheduleRef) Pause(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.operate(ctx, db, "pause", by)
}

// Resume continues the schedule with its next tick after now. Ticks missed during the pause are
// dropped.
//
// Errors: those of Pause.
func (r ScheduleRef) Resume(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.operate(ctx, db, "resume", by)
}

// Delete deletes the schedule. Jobs that it has enqueued stay. A program that still puts the
// schedule creates it again when it starts, and a FirstAt in the past makes it due at once: pause
// it instead.
//
// Errors: those of Pause.
func (r ScheduleRef) Delete(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.operate(ctx, db, "delete", by)
}

// RunNow enqueues a job of the schedule now, even if it is paused. The plan does not change. Two
// calls enqueue two jobs.
//
// Errors: those of Pause.
func (r ScheduleRef) RunNow(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return by.once(ctx, db, "schedule.run_now", func(db pawl.DB) (Result, error) {
		outcome, job, err := contract.ScheduleRunNow(ctx, db, r.Name, by.Actor, by.Reason)
		if by.dryRun {
			job = 0 // it was rolled back
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
