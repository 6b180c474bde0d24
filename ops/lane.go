package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Lane is one lane at a glance: jobs of one queue that run one at a time, in order.
type Lane struct {
	ID          int64
	Queue, Name string
	Policy      string    // what a dead letter does that has the turn: "block", "park" or "skip"
	Head        int64     // the job that has the turn; 0: nobody
	HeadStatus  Status    // of that job; empty: nobody
	Waiting     int       // jobs behind it
	Oldest      time.Time // when the first of those was enqueued; zero: nobody waits
	ReadAt      time.Time // the database's clock at the reading
}

// Blocked reports whether the lane stands until somebody decides.
func (l Lane) Blocked() bool {
	return l.HeadStatus == StatusDeadLetter || l.HeadStatus == StatusUnknown
}

// A LaneFilter selects lanes. The zero value selects the oldest 50 of all.
type LaneFilter struct {
	Queue   string
	Blocked bool  // only those that stand until somebody decides
	After   int64 // only ids above it: the last id of the page before
	Limit   int   // default 50, at most 1000
}

// Lanes returns lanes in the order of their ids. A page shorter than the limit is the last. Lanes without a job are deleted
// after a while.
//
// Errors: [pawl.ErrArgumentInvalid].
func Lanes(ctx context.Context, db DB, f LaneFilter) ([]Lane, error) {
	if err := (Filter{Limit: f.Limit}).check(); err != nil {
		return nil, err
	}
	if f.Limit == 0 {
		f.Limit = defaultLimit
	}
	rows, err := contract.LaneList(ctx, db, contract.LaneListArgs(f))
	if err != nil {
		return nil, err
	}
	lanes := make([]Lane, len(rows))
	for i, r := range rows {
		lanes[i] = laneOf(r)
	}
	return lanes, nil
}

func laneOf(r contract.LaneRow) Lane {
	l := Lane{ID: r.ID, Queue: r.Queue, Name: r.Name, Policy: r.Policy, Waiting: r.Waiting, ReadAt: r.ReadAt}
	if r.Head != nil {
		l.Head, l.HeadStatus = *r.Head, Status(*r.HeadStatus)
	}
	if r.Oldest != nil {
		l.Oldest = *r.Oldest
	}
	return l
}

// The outcomes of the verbs for lanes, beside [Refused] and [Absent].
const (
	Unblocked     Outcome = "unblocked"
	PolicyChanged Outcome = "changed"
	Idle          Outcome = "idle" // nobody has the turn; nothing changed
)

// A LaneResult is the answer of a verb for lanes.
type LaneResult struct {
	Outcome Outcome
	Job     int64  // that had the turn; 0: nobody, or it was not looked at
	Was     Status // of that job, if refused
	Policy  string // what it was, if changed
	Hint    string // the next step, if nothing changed
}

// Changed reports whether the verb did what it says.
func (r LaneResult) Changed() bool { return r.Outcome == Unblocked || r.Outcome == PolicyChanged }

// UnblockLane ends the turn of a dead letter that blocks a lane, and lets the lane go on. The dead letter stays, to be retried
// or discarded. If job is not 0, only that job is meant: if another one blocks the lane by now, it is refused. Retry the job
// instead if the order matters more than the delay.
//
// Errors: as of [Retry]; [pawl.ErrArgumentInvalid] also for By.From, which is about jobs.
func UnblockLane(ctx context.Context, db DB, queue, lane string, job int64, by By) (LaneResult, error) {
	if err := by.only("lane.unblock"); err != nil {
		return LaneResult{}, err
	}
	return laneResult("lane.unblock")(contract.LaneUnblock(ctx, db, queue, lane, by.Actor, by.Reason, job))
}

// SetLanePolicy says what a lane does when the job that has the turn becomes a dead letter: "block", "park" or "skip". A dead
// letter that blocks it already stays where it is: see [UnblockLane].
//
// Errors: as of [UnblockLane].
func SetLanePolicy(ctx context.Context, db DB, queue, lane, policy string, by By) (LaneResult, error) {
	if err := by.only("lane.policy"); err != nil {
		return LaneResult{}, err
	}
	return laneResult("lane.policy")(contract.LanePolicy(ctx, db, queue, lane, policy, by.Actor, by.Reason))
}

func laneResult(op string) func(contract.LaneOperateRow, error) (LaneResult, error) {
	return func(row contract.LaneOperateRow, err error) (LaneResult, error) {
		if err != nil {
			return LaneResult{}, err
		}
		r := LaneResult{Outcome: Outcome(row.Outcome), Was: Status(row.Status), Policy: row.Policy, Hint: row.Hint}
		if row.Job != nil {
			r.Job = *row.Job
		}
		switch r.Outcome {
		case Unblocked, PolicyChanged, Idle, Refused, Absent:
			return r, nil
		}
		return LaneResult{}, &pawl.Error{Op: op, Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
	}
}
