package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/job"
)

// A Schedule is a job that is enqueued again and again. Only Name, Plan, Queue and Kind are
// required.
type Schedule struct {
	// Name identifies the schedule: 1 to 200 octets.
	Name string
	// Plan is when the schedule ticks.
	Plan Plan
	// Queue and Kind of the job, as in [job.Request].
	Queue, Kind string
	// Payload of each job, exact octets; or Value, which is encoded as JSON. The job's headers hold
	// the tick: see [TickOf].
	Payload []byte
	Value   any
	// Missed is the policy for ticks that were not enqueued when they were due, as in an outage.
	// Default MissedLast.
	Missed Missed
	// FirstAt is the first tick of an interval, and the earliest of an expression. If it has
	// passed, a new schedule is due at once, and Missed decides about the ticks since. If the Plan
	// of a schedule changes, it ticks next at the next moment of the new grid, so no tick comes
	// twice. Default one interval from now, or the next moment of the expression.
	FirstAt time.Time
	// Priority, MaxAttempts and Headers are those of [job.Request].
	Priority, MaxAttempts int
	Headers               map[string]any
	// Lane makes a tick's job wait for the one before it. Without a Lane, a job that takes longer
	// than the interval runs beside the next. Lane and LanePolicy are those of [job.Request].
	Lane       string
	LanePolicy job.LanePolicy
}

// Missed is the policy for ticks that were not enqueued when they were due.
type Missed string

// The policies for missed ticks.
const (
	MissedLast Missed = "last" // enqueue the newest and skip the others
	MissedAll  Missed = "all"  // enqueue all, oldest first, but at most the newest 1,000
)

// Stored is the outcome of [Put].
type Stored string

// The outcomes of Put.
const (
	Created   Stored = "created"
	Changed   Stored = "changed"
	Unchanged Stored = "unchanged"
)

// Put stores a schedule under its name. Call it each time the program starts: while the plan stays
// the same, the next tick does not move. A new plan applies from now on and ignores FirstAt; a tick
// that is already due is still enqueued, and a new interval counts from there. A paused schedule
// stays paused. In your transaction, Put takes effect at your COMMIT.
//
// Errors: [pawl.ErrScopeInvalid] for the Name; [pawl.ErrArgumentInvalid] outside a bound; a
// [pawl.Retryable] error if another transaction holds the schedule for more than 2 s.
func Put(ctx context.Context, db pawl.DB, s Schedule) (Stored, error) {
	args, err := s.args()
	if err != nil {
		return "", &pawl.Error{Op: "schedule.put", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	if s.Plan.next != nil {
		if args.FirstAt, err = s.first(ctx, db); err != nil {
			return "", err
		}
	}
	row, err := contract.SchedulePut(ctx, db, args)
	if err != nil {
		return "", err
	}
	switch stored := Stored(row.Outcome); stored {
	case Created, Changed, Unchanged:
		return stored, nil
	}
	return "", &pawl.Error{Op: "schedule.put", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
}

// first returns the first tick of a cron expression: from FirstAt on, or from now on by the
// database's clock.
func (s Schedule) first(ctx context.Context, db pawl.DB) (time.Time, error) {
	if !s.FirstAt.IsZero() {
		// Next is after its argument, and the database counts in microseconds.
		return s.Plan.Next(s.FirstAt.Add(-time.Microsecond)), nil
	}
	now, err := catalog.Now(ctx, db)
	return s.Plan.Next(now), err
}

func (s Schedule) args() (contract.SchedulePutArgs, error) {
	a := contract.SchedulePutArgs{Name: s.Name, Queue: s.Queue, Kind: s.Kind, Args: s.Payload, Every: s.Plan.every, Cron: s.Plan.expression,
		TimeZone: s.Plan.zone, FirstAt: s.FirstAt, Missed: string(s.Missed), Priority: s.Priority, MaxAttempts: s.MaxAttempts,
		Headers: s.Headers, Lane: s.Lane, LanePolicy: string(s.LanePolicy)}
	err := s.Plan.check()
	switch {
	case err != nil:
		return a, err
	case s.Value != nil && s.Payload != nil:
		return a, errors.New("the schedule has both Payload and Value: give one of the two")
	case s.Value != nil:
		a.Args, err = json.Marshal(s.Value)
	}
	return a, err
}

// A Tick is the moment for which a job was enqueued.
type Tick struct {
	Schedule string
	At       time.Time // when the tick was due, in UTC, not when it was enqueued
}

// TickOf returns the tick for which a job was enqueued, or false if no schedule enqueued it.
func TickOf(j job.Job) (Tick, bool) {
	name, _ := j.Headers["pawl-schedule"].(string)
	text, _ := j.Headers["pawl-tick"].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	return Tick{Schedule: name, At: at}, name != "" && err == nil
}
