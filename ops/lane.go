package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Lane is one lane: jobs of one queue that run one at a time, in order.
type Lane struct {
	ID         int64     `json:"id"`
	Queue      string    `json:"queue"`
	Name       string    `json:"name"`
	Policy     string    `json:"policy"`               // what a dead letter does that has the turn: "block", "park" or "skip"
	Head       int64     `json:"head,omitzero"`        // the job that has the turn; 0: none
	HeadStatus Status    `json:"head_status,omitzero"` // of that job
	Waiting    int       `json:"waiting"`              // jobs behind it
	Oldest     time.Time `json:"oldest,omitzero"`      // when the first of those was enqueued; zero: none waits
	ReadAt     time.Time `json:"read_at"`              // the database's clock at the reading

	Changes []Change `json:"changes,omitzero" col:"-"` // by hand: the newest 100, oldest first; read by Get only
}

// Ref names the lane as it was read.
func (l Lane) Ref() LaneRef { return LaneRef{Queue: l.Queue, Name: l.Name, Head: l.Head} }

// Blocked reports whether the lane stands until an operator decides.
func (l Lane) Blocked() bool {
	return l.HeadStatus == StatusDeadLetter || l.HeadStatus == StatusUnknown
}

// Lanes selects lanes. The zero value selects all.
type Lanes struct {
	Queue   string
	Blocked bool   // only those that stand until an operator decides
	After   string // only those behind this one: [Page.Next] of the page before
	Limit   int    // default 50, at most 1000
}

// List returns lanes in the order of their ids. Lanes without a job are deleted after a while.
//
// Errors: [pawl.ErrArgumentInvalid].
func (s Lanes) List(ctx context.Context, db pawl.DB) (Page[Lane], error) {
	page, err := pageOf("lane.list", s.After, s.Limit, anID)
	if err != nil {
		return Page[Lane]{}, err
	}
	rows, err := catalog.Lanes[Lane](ctx, db, catalog.LaneQuery{Queue: s.Queue, Blocked: s.Blocked, Page: page})
	return cut(rows, page, func(l Lane) []string { return []string{id(l.ID)} }), err
}

// A LaneRef names a lane, and what you saw of it.
type LaneRef struct {
	Queue, Name string
	// Head is the job that blocks the lane, as you saw it: if another one does by now, Unblock is refused. Default: any.
	Head int64
}

// Get returns everything about the lane.
//
// Errors: [pawl.ErrNotFound].
func (r LaneRef) Get(ctx context.Context, db pawl.DB) (Lane, error) {
	rows, err := catalog.Lane[Lane](ctx, db, r.Queue, r.Name)
	l, err := only(rows, err, "lane.get", fmt.Sprintf("lane %s in queue %s", r.Name, r.Queue))
	if err != nil {
		return l, err
	}
	l.Changes, err = changes(ctx, db, "lane", id(l.ID))
	return l, err
}

// Unblock ends the turn of a dead letter that blocks the lane, and lets the lane go on. The dead letter stays, to be retried
// or discarded. [Idle]: no dead letter blocks it. If the order matters more than the delay, retry the job instead.
//
// Errors: as of [JobRef.Retry].
func (r LaneRef) Unblock(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return by.once(ctx, db, "lane.unblock", func(db pawl.DB) (Result, error) {
		return r.result(contract.LaneUnblock(ctx, db, r.Queue, r.Name, by.Actor, by.Reason, r.Head))
	})
}

// SetPolicy says what the lane does when the job that has the turn becomes a dead letter: "block", "park" or "skip". A dead
// letter that blocks it already stays where it is.
//
// Errors: as of [JobRef.Retry].
func (r LaneRef) SetPolicy(ctx context.Context, db pawl.DB, policy string, by By) (Result, error) {
	return by.once(ctx, db, "lane.policy", func(db pawl.DB) (Result, error) {
		result, err := r.result(contract.LanePolicy(ctx, db, r.Queue, r.Name, policy, by.Actor, by.Reason))
		if result.Changed() {
			result.Now = policy
		}
		return result, err
	})
}

func (r LaneRef) result(row contract.LaneOperateRow, err error) (Result, error) {
	result := Result{Outcome: Outcome(row.Outcome), Was: row.Status, Hint: row.Hint}
	if row.Policy != "" {
		result.Was = row.Policy
	}
	if row.Job != nil {
		result.JobID = *row.Job
	}
	if result.Hint == "" && !result.Changed() {
		result.Hint = "list the lanes that are blocked"
	}
	return result, err
}
