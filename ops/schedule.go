package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Schedule enqueues a job again and again; see package schedule.
type Schedule struct {
	Name           string
	Cron, TimeZone string        // or
	Every          time.Duration // an interval
	Missed         string        // what is enqueued after an outage: "last" or "all" of what was missed
	Paused         bool
	NextAt         time.Time // zero: a keeper that reads cron has not looked yet
	LastAt         time.Time // the last tick that was enqueued; zero: none
	Queue, Kind    string
	Priority       int
	MaxAttempts    int
	Lane           string
	ArgsOctets     int
	CreatedAt      time.Time
	ReadAt         time.Time // the database's clock at the reading
}

// Overdue is how long the next tick is late; more than a second or two means that no keeper runs, or none that reads cron.
func (s Schedule) Overdue() time.Duration {
	if s.Paused || s.NextAt.IsZero() {
		return 0
	}
	return max(0, s.ReadAt.Sub(s.NextAt))
}

// A ScheduleFilter selects schedules. The zero value selects the first 50.
type ScheduleFilter struct {
	After string // only names behind it: the last of the page before
	Limit int    // default 50, at most 1000
}

// Schedules returns schedules in the order of their names (by octets). A page shorter than the limit is the last.
//
// Errors: [pawl.ErrArgumentInvalid].
func Schedules(ctx context.Context, db DB, f ScheduleFilter) ([]Schedule, error) {
	if err := (Filter{Limit: f.Limit}).check(); err != nil {
		return nil, err
	}
	if f.Limit == 0 {
		f.Limit = defaultLimit
	}
	rows, err := contract.ScheduleList(ctx, db, f.After, f.Limit)
	if err != nil {
		return nil, err
	}
	schedules := make([]Schedule, len(rows))
	for i, r := range rows {
		schedules[i] = scheduleOf(r)
	}
	return schedules, nil
}

func scheduleOf(r contract.ScheduleRow) Schedule {
	s := Schedule{Name: r.Name, Cron: textOf(r.Cron), TimeZone: textOf(r.TimeZone), Missed: r.Missed, Paused: r.Paused, Queue: r.Queue, Kind: r.Kind,
		Priority: r.Priority, MaxAttempts: r.MaxAttempts, Lane: textOf(r.Lane), ArgsOctets: r.ArgsOctets, CreatedAt: r.CreatedAt, ReadAt: r.ReadAt}
	if r.EveryMs != nil {
		s.Every = time.Duration(*r.EveryMs) * time.Millisecond
	}
	if r.NextAt != nil {
		s.NextAt = *r.NextAt
	}
	if r.LastAt != nil {
		s.LastAt = *r.LastAt
	}
	return s
}

// The outcomes of the verbs for schedules, beside [Unchanged] and [Absent].
const (
	SchedulePaused  Outcome = "paused"
	ScheduleResumed Outcome = "resumed"
	ScheduleRan     Outcome = "enqueued"
	ScheduleDeleted Outcome = "deleted"
)

// A ScheduleResult is the answer of a verb for schedules.
type ScheduleResult struct {
	Outcome Outcome
	Job     int64 // of RunScheduleNow
}

// Changed reports whether the verb did what it says.
func (r ScheduleResult) Changed() bool { return r.Outcome != Unchanged && r.Outcome != Absent }

// PauseSchedule stops a schedule: it enqueues nothing until it is resumed, also what is due already. Jobs that it has enqueued stay.
//
// Errors: [pawl.ErrArgumentInvalid], also for By.From, which is about jobs; a [pawl.Retryable] one if an open transaction has the
// schedule for more than 2 s.
func PauseSchedule(ctx context.Context, db DB, name string, by By) (ScheduleResult, error) {
	return scheduleVerb(ctx, db, "pause", name, by, SchedulePaused)
}

// ResumeSchedule lets a schedule go on, with its next tick from now on: what would have ticked meanwhile is dropped.
//
// Errors: as of [PauseSchedule].
func ResumeSchedule(ctx context.Context, db DB, name string, by By) (ScheduleResult, error) {
	return scheduleVerb(ctx, db, "resume", name, by, ScheduleResumed)
}

// DeleteSchedule deletes a schedule. Jobs that it has enqueued stay. A program that still puts it makes it anew when it starts.
//
// Errors: as of [PauseSchedule].
func DeleteSchedule(ctx context.Context, db DB, name string, by By) (ScheduleResult, error) {
	return scheduleVerb(ctx, db, "delete", name, by, ScheduleDeleted)
}

// RunScheduleNow enqueues a job of a schedule, paused or not, beside its plan, which stays as it is. Called twice it enqueues two.
//
// Errors: as of [PauseSchedule].
func RunScheduleNow(ctx context.Context, db DB, name string, by By) (ScheduleResult, error) {
	const op = "schedule.run_now"
	if err := by.only(op); err != nil {
		return ScheduleResult{}, err
	}
	outcome, job, err := contract.ScheduleRunNow(ctx, db, name, by.Actor, by.Reason)
	if err != nil {
		return ScheduleResult{}, err
	}
	return scheduleResult(op, ScheduleResult{Outcome(outcome), job}, ScheduleRan)
}

func scheduleVerb(ctx context.Context, db DB, verb, name string, by By, done Outcome) (ScheduleResult, error) {
	op := "schedule." + verb
	if err := by.only(op); err != nil {
		return ScheduleResult{}, err
	}
	outcome, err := contract.ScheduleOperate(ctx, db, verb, name, by.Actor, by.Reason)
	if err != nil {
		return ScheduleResult{}, err
	}
	return scheduleResult(op, ScheduleResult{Outcome: Outcome(outcome)}, done)
}

func scheduleResult(op string, r ScheduleResult, done Outcome) (ScheduleResult, error) {
	switch r.Outcome {
	case done, Unchanged, Absent:
		return r, nil
	}
	return ScheduleResult{}, &pawl.Error{Op: op, Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", r.Outcome)}
}
