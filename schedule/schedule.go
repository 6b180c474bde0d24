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

// A Schedule is a job that is enqueued again and again. Only Name, Plan, Queue and Kind are required.
type Schedule struct {
	// Name is its identity: 1 to 200 octets.
	Name string
	// Plan says when.
	Plan Plan
	// Queue and Kind of the job, as of [job.Request].
	Queue, Kind string
	// Payload of each job, exact octets; or Value, which is encoded as JSON. Which tick it is stands in the headers: [TickOf].
	Payload []byte
	Value   any
	// Missed says what becomes of ticks that nobody enqueued when they were due, in an outage for instance. Default MissedLast.
	Missed Missed
	// FirstAt is where the ticks begin: an interval ticks there for the first time, an expression no sooner. If it has passed, a schedule that
	// is new is due at once, and Missed says what of all that followed. One whose Plan changes ticks at the next moment of its grid: no tick
	// is made twice. Default one interval from now, or the expression's next.
	FirstAt time.Time
	// Priority, MaxAttempts and Headers are those of [job.Request].
	Priority, MaxAttempts int
	Headers               map[string]any
	// Lane makes a tick's job wait for the one before it, as of [job.Request]: without, a job that takes longer than the interval runs
	// beside the next. LanePolicy as of [job.Request].
	Lane       string
	LanePolicy job.LanePolicy
}

// Missed says what becomes of ticks that nobody enqueued when they were due.
type Missed string

// What is enqueued after an outage.
const (
	MissedLast Missed = "last" // the newest one; the others are left out
	MissedAll  Missed = "all"  // every one, oldest first, but no more than the newest 1,000
)

// Stored is what became of [Put].
type Stored string

// The outcomes of Put.
const (
	Created   Stored = "created"
	Changed   Stored = "changed"
	Unchanged Stored = "unchanged" // it was there just so
)

// Put stores a schedule under its name. Call it each time the program starts: while the plan stays the same, so does the next tick,
// however often that is. With another plan it ticks by that from now on, whatever its FirstAt; what is due already is still enqueued, and an
// interval is counted from there. One that an operator has paused stays paused. In a transaction of yours it holds from your COMMIT.
//
// Errors: [pawl.ErrScopeInvalid] for a name; [pawl.ErrArgumentInvalid] outside a bound; a [pawl.Retryable] one if somebody else
// changes the same schedule for more than 2 s.
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

// first returns the first tick of a cron expression: from FirstAt on, or from now on by the database's clock.
func (s Schedule) first(ctx context.Context, db pawl.DB) (time.Time, error) {
	if !s.FirstAt.IsZero() {
		return s.Plan.Next(s.FirstAt.Add(-time.Microsecond)), nil // as fine as the database's
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
	At       time.Time // UTC; the plan's, not that of the enqueueing
}

// TickOf returns the tick for which a job was enqueued, and false if it is no schedule's.
func TickOf(j job.Job) (Tick, bool) {
	name, _ := j.Headers["pawl-schedule"].(string)
	text, _ := j.Headers["pawl-tick"].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	return Tick{Schedule: name, At: at}, name != "" && err == nil
}
