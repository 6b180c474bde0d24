package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Queue is what was set for a queue by hand.
type Queue struct {
	ID      int64 // its name in the audit: "queue 3"
	Name    string
	Archive bool // finished jobs are kept for seven days
	Mode    QueueMode
	// Processing jobs are running, and those that were Begun wait for another try: both 0 means that a queue that drains is drained.
	Processing, Begun int
}

// A QueueMode is what may be claimed of a queue. It holds for claims that begin after the commit, in any process: a worker looks at each,
// and finds that a queue runs again within its Poll.
type QueueMode string

// The modes. In each, attempts that are running go on to their end, and jobs can be enqueued.
const (
	QueueRunning QueueMode = "running"
	// QueueDraining claims only what was tried before and is to be tried again, so that what was begun comes to its end.
	QueueDraining QueueMode = "draining"
	// QueuePaused claims nothing.
	QueuePaused QueueMode = "paused"
)

// A QueueFilter selects queues. The zero value selects the first 50.
type QueueFilter struct {
	After string // only names behind it: the last of the page before
	Limit int    // default 50, at most 1000
}

// Queues returns the queues for which something was set, in the order of their names (by octets). A queue that is not among
// them has the defaults. A page shorter than the limit is the last.
//
// Errors: [pawl.ErrArgumentInvalid].
func Queues(ctx context.Context, db DB, f QueueFilter) ([]Queue, error) {
	if err := (Filter{Limit: f.Limit}).check(); err != nil {
		return nil, err
	}
	if f.Limit == 0 {
		f.Limit = defaultLimit
	}
	rows, err := contract.QueueList(ctx, db, f.After, f.Limit)
	if err != nil {
		return nil, err
	}
	queues := make([]Queue, len(rows))
	for i, r := range rows {
		queues[i] = Queue{r.ID, r.Name, r.Archive, QueueMode(r.Mode), r.Processing, r.Begun}
	}
	return queues, nil
}

// QueueOptions are what can be set for a queue. A zero field stays as it is.
type QueueOptions struct {
	// Mode is what may be claimed of the queue. Default QueueRunning.
	Mode QueueMode
	// Archive keeps finished jobs, payload and all, for seven days. Default off: a finished job is deleted. A finish then costs
	// two to three times as much; see docs/decisions/0019-archive.md.
	Archive *bool
}

// The outcomes of SetQueue.
const (
	QueueChanged Outcome = "changed"
	Unchanged    Outcome = "unchanged" // it was so already; no record
)

// A QueueResult is the answer of [SetQueue].
type QueueResult struct {
	Outcome Outcome
	Was     Queue // before: Name, Archive and Mode
}

// Changed reports whether anything changed.
func (r QueueResult) Changed() bool { return r.Outcome == QueueChanged }

// SetQueue sets what holds for all jobs of a queue, from the commit on. The queue need not have had a job.
//
// Errors: as of [Retry]; [pawl.ErrScopeInvalid] for the name; [pawl.ErrArgumentInvalid] also for By.From, which is about jobs.
func SetQueue(ctx context.Context, db DB, queue string, o QueueOptions, by By) (QueueResult, error) {
	if err := by.only("queue.set"); err != nil {
		return QueueResult{}, err
	}
	row, err := contract.QueueSet(ctx, db, queue, o.Archive, string(o.Mode), by.Actor, by.Reason)
	if err != nil {
		return QueueResult{}, err
	}
	r := QueueResult{Outcome: Outcome(row.Outcome), Was: Queue{Name: queue, Archive: row.Archive, Mode: QueueMode(row.Mode)}}
	switch r.Outcome {
	case QueueChanged, Unchanged:
		return r, nil
	}
	return QueueResult{}, &pawl.Error{Op: "queue.set", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
}

// An ArchivedJob is a job that finished, as its queue's archive kept it.
type ArchivedJob struct {
	ID          int64
	Queue, Kind string
	Lane        string // empty: it was in none
	Position    int64  // in the lane
	Priority    int
	Attempts    int // the last one succeeded
	Crashes     int
	Fence       int64 // of the attempt that finished
	CreatedAt   time.Time
	FinishedAt  time.Time
	Headers     map[string]any
	Args        []byte    // the payload
	ReadAt      time.Time // the database's clock at the reading
}

// Archived returns a job that finished in the last seven days, and false if the archive does not have it: its queue had none
// when it finished, or it is older, or has not finished.
func Archived(ctx context.Context, db DB, id int64) (j ArchivedJob, found bool, err error) {
	rows, err := contract.ArchiveShow(ctx, db, id)
	if err != nil || len(rows) == 0 {
		return ArchivedJob{}, false, err
	}
	r := rows[0]
	j = ArchivedJob{ID: r.ID, Queue: r.Queue, Kind: r.Kind, Priority: r.Priority, Attempts: r.Attempts, Crashes: r.Crashes, Fence: r.Fence,
		CreatedAt: r.CreatedAt, FinishedAt: r.FinishedAt, Headers: r.Headers, Args: r.Args, ReadAt: r.ReadAt}
	if r.Lane != nil {
		j.Lane, j.Position = *r.Lane, *r.Position
	}
	return j, true, nil
}
