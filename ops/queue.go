package ops

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Queue is one queue: its settings and its number of jobs. A queue exists without any setup.
type Queue struct {
	ID   int64  `json:"id,omitzero"` // its name in the audit: "queue 3"; 0: no settings
	Name string `json:"name"`
	// Mode says which jobs workers claim: "running", all that are due; "draining", only jobs that
	// were tried before; "paused", none. In each mode, running attempts continue, and jobs can be
	// enqueued.
	Mode    string `json:"mode"`
	Archive bool   `json:"archive"` // finished jobs are kept for seven days
	Due     int    `json:"due"`     // can be claimed now, if the mode allows it
	Later   int    `json:"later"`   // retries and delayed jobs that are not due yet
	Waiting int    `json:"waiting"` // for their turn in a lane
	// if this and Begun are 0, a draining queue is drained
	Processing   int `json:"processing"`
	Begun        int `json:"begun"` // of Due and Later: jobs that were tried before
	Dead         int `json:"dead"`
	Unknown      int `json:"unknown"`
	Cancelled    int `json:"cancelled"`
	LanesBlocked int `json:"lanes_blocked"` // by a dead letter or an unknown job
	// since when the first due job is due; zero: none is
	DueSince time.Time `json:"due_since,omitzero"`
	ReadAt   time.Time `json:"read_at"` // the database's clock when the row was read

	// by operators: the newest 100, oldest first; read by Get only
	Changes []Change `json:"changes,omitzero" col:"-"`
}

// Ref returns a reference to the queue.
func (q Queue) Ref() QueueRef { return QueueRef{Name: q.Name} }

// The modes of a queue.
const (
	QueueRunning  = "running"  // workers claim all due jobs
	QueueDraining = "draining" // workers claim only jobs that were tried before
	QueuePaused   = "paused"   // workers claim none
)

// Queues selects queues with settings or unfinished jobs. The zero value selects all.
type Queues struct {
	After string // only rows after this one: [Page.Next] of the previous page
	Limit int    // default 50, at most 1000
}

// List returns queues ordered by name, compared by bytes. A queue that is not listed has no jobs
// and is running. List reads all of pawl.job.
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

// A QueueRef identifies a queue.
type QueueRef struct{ Name string }

// Get returns everything about the queue. It reads its jobs.
//
// Errors: [pawl.ErrNotFound] if the queue has no settings and no job: then it is running and has no
// archive.
func (r QueueRef) Get(ctx context.Context, db pawl.DB) (Queue, error) {
	rows, err := catalog.Queue[Queue](ctx, db, r.Name)
	q, err := only(rows, err, "queue.get", "job of queue "+r.Name+", and nothing was set for it")
	if err != nil {
		return q, err
	}
	q.Changes, err = changes(ctx, db, "queue", id(q.ID))
	return q, err
}

// Pause stops workers from claiming jobs of the queue. It applies to claims that begin after the
// commit, in any process. The queue may be one that never had a job. Outcome [Unchanged]: it was
// paused already.
//
// Errors: those of [JobRef.Retry]; [pawl.ErrScopeInvalid] for the name.
func (r QueueRef) Pause(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.mode(ctx, db, QueuePaused, by)
}

// Drain lets workers claim only jobs that were tried before, so that started work finishes.
//
// Errors: those of Pause.
func (r QueueRef) Drain(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.mode(ctx, db, QueueDraining, by)
}

// Resume lets workers claim all due jobs. A worker notices within its Poll interval.
//
// Errors: those of Pause.
func (r QueueRef) Resume(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.mode(ctx, db, QueueRunning, by)
}

func (r QueueRef) mode(ctx context.Context, db pawl.DB, mode string, by By) (Result, error) {
	return r.set(ctx, db, nil, mode, by, func(row contract.QueueSetRow) (was, now string) { return row.Mode, mode })
}

// SetArchive sets whether finished jobs are kept for seven days, payload included. By default a
// finished job is deleted. With an archive, finishing a job costs two to three times as much; see
// docs/decisions/0019-archive.md.
//
// Errors: those of Pause.
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
