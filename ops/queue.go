package ops

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Queue is one queue: what was set for it by hand, and how many jobs it has. A queue needs no setting up.
type Queue struct {
	ID   int64  `json:"id,omitzero"` // its name in the audit: "queue 3"; 0: nothing was set
	Name string `json:"name"`
	// Mode is what may be claimed of the queue: "running", all that is due; "draining", only what was tried before and is to be tried again;
	// "paused", nothing. In each, attempts that are running go on to their end, and jobs can be enqueued.
	Mode         string    `json:"mode"`
	Archive      bool      `json:"archive"`    // finished jobs are kept for seven days
	Due          int       `json:"due"`        // may be claimed now, if the mode lets them
	Later        int       `json:"later"`      // wait for their time: retries and delayed jobs
	Waiting      int       `json:"waiting"`    // for their turn in a lane
	Processing   int       `json:"processing"` // with Begun 0: a queue that drains is drained
	Begun        int       `json:"begun"`      // of Due and Later: tried before, and to be tried again
	Dead         int       `json:"dead"`
	Unknown      int       `json:"unknown"`
	Cancelled    int       `json:"cancelled"`
	LanesBlocked int       `json:"lanes_blocked"`      // by a dead letter or an unknown job
	DueSince     time.Time `json:"due_since,omitzero"` // of the first that is due; zero: none is
	ReadAt       time.Time `json:"read_at"`            // the database's clock at the reading

	Changes []Change `json:"changes,omitzero" col:"-"` // by hand: the newest 100, oldest first; read by Get only
}

// Ref names the queue.
func (q Queue) Ref() QueueRef { return QueueRef{Name: q.Name} }

// The modes of a queue.
const (
	QueueRunning  = "running"
	QueueDraining = "draining"
	QueuePaused   = "paused"
)

// Queues selects queues: those for which something was set, and those with a job that has not finished. The zero value selects all.
type Queues struct {
	After string // only those behind this one: [Page.Next] of the page before
	Limit int    // default 50, at most 1000
}

// List returns queues in the order of their names, by octets. A queue that is not among them has no jobs and the mode running. It reads
// the whole of pawl.job.
//
// Errors: [pawl.ErrArgumentInvalid].
func (s Queues) List(ctx context.Context, db pawl.DB) (Page[Queue], error) {
	page, err := pageOf("queue.list", s.After, s.Limit, anyText)
	if err != nil {
		return Page[Queue]{}, err
	}
	rows, err := catalog.Queues[Queue](ctx, db, page)
	return cut(rows, page, func(q Queue) []string { return []string{q.Name} }), err
}

// A QueueRef names a queue.
type QueueRef struct{ Name string }

// Get returns everything about the queue. It reads its jobs.
//
// Errors: [pawl.ErrNotFound] if nothing was set for it and it has no job: then it has the mode running and no archive.
func (r QueueRef) Get(ctx context.Context, db pawl.DB) (Queue, error) {
	rows, err := catalog.Queue[Queue](ctx, db, r.Name)
	q, err := only(rows, err, "queue.get", "job of queue "+r.Name+", and nothing was set for it")
	if err != nil {
		return q, err
	}
	q.Changes, err = changes(ctx, db, "queue", id(q.ID))
	return q, err
}

// Pause lets workers claim nothing of the queue. Modes hold for claims that begin after the commit, in any process. The queue need not have
// had a job. [Unchanged]: it was paused already.
//
// Errors: as of [JobRef.Retry]; [pawl.ErrScopeInvalid] for the name.
func (r QueueRef) Pause(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.mode(ctx, db, QueuePaused, by)
}

// Drain lets workers claim of the queue only what was tried before and is to be tried again, so that what was begun comes to its end.
//
// Errors: as of Pause.
func (r QueueRef) Drain(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.mode(ctx, db, QueueDraining, by)
}

// Resume lets workers claim all that is due. A worker finds that a queue runs again within its Poll.
//
// Errors: as of Pause.
func (r QueueRef) Resume(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.mode(ctx, db, QueueRunning, by)
}

func (r QueueRef) mode(ctx context.Context, db pawl.DB, mode string, by By) (Result, error) {
	return r.set(ctx, db, nil, mode, by, func(row contract.QueueSetRow) (was, now string) { return row.Mode, mode })
}

// SetArchive keeps finished jobs, payload and all, for seven days, or no longer keeps them: by default a finished job is deleted. A finish then costs
// two to three times as much; see docs/decisions/0019-archive.md.
//
// Errors: as of Pause.
func (r QueueRef) SetArchive(ctx context.Context, db pawl.DB, archive bool, by By) (Result, error) {
	return r.set(ctx, db, &archive, "", by, func(row contract.QueueSetRow) (was, now string) { return onOff(row.Archive), onOff(archive) })
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (r QueueRef) set(ctx context.Context, db pawl.DB, archive *bool, mode string, by By, told func(contract.QueueSetRow) (was, now string)) (Result, error) {
	return by.once(ctx, db, "queue.set", func(db pawl.DB) (Result, error) {
		row, err := contract.QueueSet(ctx, db, r.Name, archive, mode, by.Actor, by.Reason)
		was, now := told(row)
		result := Result{Outcome: Outcome(row.Outcome), Was: was, Now: now}
		if result.Outcome == Unchanged {
			result.Hint = "it was " + was + " already"
		}
		return result, err
	})
}
