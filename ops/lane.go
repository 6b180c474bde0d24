package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Lane is a sequence of jobs of one queue that run one at a time, in order.
type Lane struct {
	ID    int64  `json:"id"`
	Queue string `json:"queue"`
	Name  string `json:"name"`
	// what a dead letter at the head does: "block", "park" or "skip"
	Policy     string `json:"policy"`
	Head       int64  `json:"head,omitzero"`        // the job whose turn it is; 0: none
	HeadStatus Status `json:"head_status,omitzero"` // of that job
	Waiting    int    `json:"waiting"`              // jobs behind the head
	// when the first of those was enqueued; zero: none waits
	Oldest time.Time `json:"oldest,omitzero"`
	ReadAt time.Time `json:"read_at"` // the database's clock when the row was read

	// by operators: the newest 100, oldest first; read by Get only
	Changes []Change `json:"changes,omitzero" col:"-"`
}

// Ref returns a reference to the lane as it was read.
func (l Lane) Ref() LaneRef { return LaneRef{Queue: l.Queue, Name: l.Name, Head: l.Head} }

// Blocked reports whether the lane waits for an operator's decision.
func (l Lane) Blocked() bool {
	return l.HeadStatus == StatusDeadLetter || l.HeadStatus == StatusUnknown
}

// Lanes selects lanes. The zero value selects all.
type Lanes struct {
	Queue   string
	Blocked bool   // only lanes that wait for an operator's decision
	After   string // only rows after this one: [Page.Next] of the previous page
	Limit   int    // default 50, at most 1000
}

// List returns lanes ordered by id. Lanes without a job are deleted after a while.
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

// A LaneRef identifies a lane, and may hold what you saw of it.
type LaneRef struct {
	Queue, Name string
	// Head is the job that blocks the lane, as you saw it. If another job blocks it now, Unblock is
	// refused. Default: any.
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

// Unblock lets a lane continue without the dead letter that blocks it. The dead letter stays, to be
// retried or discarded. Outcome [Idle]: the lane has no head. Outcome [Refused]: its head is not a
// dead letter, or is no longer Head. If the order matters more than the delay, retry the job
// instead.
//
// Errors: those of [JobRef.Retry].
func (r LaneRef) Unblock(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return by.once(ctx, db, "lane.unblock", func(db pawl.DB) (Result, error) {
		return r.result(contract.LaneUnblock(ctx, db, r.Queue, r.Name, by.Actor, by.Reason, r.Head))
	})
}

// SetPolicy sets what the lane does when its head becomes a dead letter: "block", "park" or "skip".
// A dead letter that blocks it already stays where it is.
//
// Errors: those of [JobRef.Retry].
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
