package ops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Job is one job. The fields from Headers on are read by Get only.
type Job struct {
	ID            int64     `json:"id"`
	Queue         string    `json:"queue"`
	Kind          string    `json:"kind"`
	Status        Status    `json:"status"`
	Priority      int       `json:"priority"`     // 1 first
	Attempts      int       `json:"attempts"`     // used, the running one included
	MaxAttempts   int       `json:"max_attempts"` // 0: it has finished
	Crashes       int       `json:"crashes"`      // deaths of a process it was present at
	Fence         int64     `json:"fence"`
	AvailableAt   time.Time `json:"available_at,omitzero"` // not before
	CreatedAt     time.Time `json:"created_at"`
	Worker        string    `json:"worker,omitzero"` // whose attempt is running; empty: none, or one without a worker
	LastError     string    `json:"last_error,omitzero"`
	LastCode      string    `json:"last_code,omitzero"` // of that error: a SQLSTATE, "crash", "mismatch" ([CodeMismatch]), or empty
	PayloadOctets int       `json:"payload_octets"`
	Lane          string    `json:"lane,omitzero"`                  // in which it runs one at a time with others; empty: none
	Key           string    `json:"key,omitzero" col:"message_key"` // of the delivery that is stored in it; empty: it is none, or that had none
	ReadAt        time.Time `json:"read_at"`                        // the database's clock at the reading: ages count from here

	Headers        map[string]any `json:"headers,omitzero" col:"get"`
	Payload        []byte         `json:"payload,omitzero" col:"get"`
	Errors         []JobError     `json:"errors,omitzero" col:"get"`           // the last 10, oldest first
	Position       int64          `json:"position,omitzero" col:"get"`         // in the lane
	FinishedAt     time.Time      `json:"finished_at,omitzero" col:"get"`      // of an archived job
	LeaseExpiresAt time.Time      `json:"lease_expires_at,omitzero" col:"get"` // zero: no attempt is running
	WorkerID       int64          `json:"worker_id,omitzero" col:"get"`        // 0: none, or it was claimed without a worker
	WorkerSeenAt   time.Time      `json:"worker_seen_at,omitzero" col:"get"`   // its last heartbeat
	WorkerPresence bool           `json:"worker_presence,omitzero" col:"get"`  // it holds a presence lock, so that its death is noticed before the lease is over
	Steps          []Step         `json:"steps,omitzero" col:"-"`              // its calls of other systems, at most 100
	Changes        []Change       `json:"changes,omitzero" col:"-"`            // by hand: the newest 100, oldest first
}

// Ref names the job as it was read.
func (j Job) Ref() JobRef { return JobRef{ID: j.ID, Fence: j.Fence, Statuses: []Status{j.Status}} }

// MayDouble reports whether a retry of the job may take effect a second time: it is a delivery that
// came under a known key with another payload, or later than is remembered, and has not been
// retried; or its handler ended the transaction that it was lent, so that what it wrote may be
// durable although its attempt failed ([pawl.CodeCommitUnknown]). A delivery that could not be
// identified is none of these: its retry claims its key first, and if it turns out to be one of
// these, it becomes such a dead letter and its handler is not called.
func (j Job) MayDouble() bool {
	return j.Status == StatusDeadLetter && slices.Contains(doubling, pawl.Code(j.LastCode))
}

// CodeMismatch is the LastCode of a delivery that came under a known key with another payload. A handler that fails with
// [pawl.ErrKeyReused] of something it asked for leaves that code.
const CodeMismatch pawl.Code = contract.CodeMismatch

// doubling are the codes of such errors.
var doubling = []pawl.Code{CodeMismatch, pawl.CodeDeliveryStale, pawl.CodeCommitUnknown}

// A JobError is how one attempt ended.
type JobError struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Code    string    `json:"code,omitzero"` // a SQLSTATE, "crash", or empty
	Error   string    `json:"error"`
	Fence   int64     `json:"fence,omitzero"`  // of the attempt; 0: a consumer's, before the delivery was a job
	Worker  string    `json:"worker,omitzero"` // its name, if it had a row when the attempt ended

	LeaseEndedAt time.Time `json:"lease_ended_at,omitzero"` // of an attempt that was taken back because its lease was over
}

// Jobs selects jobs that have not finished. The zero value selects all.
type Jobs struct {
	Queue, Kind string
	Statuses    []Status      // empty: any; of RetryAll and DiscardAll: dead letters
	Error       string        // only those whose last error holds this text, as it is
	NoDoubles   bool          // not those of which a retry may take effect a second time: see [Job.MayDouble]
	OlderThan   time.Duration // only those enqueued longer ago than this; 0: any
	After       string        // only those behind this one: [Page.Next] of the page before
	Limit       int           // of List: default 50, at most 1000
}

// List returns jobs in the order of their ids.
//
// Errors: [pawl.ErrArgumentInvalid].
func (s Jobs) List(ctx context.Context, db pawl.DB) (Page[Job], error) {
	q, err := s.query("job.list")
	if err != nil {
		return Page[Job]{}, err
	}
	rows, err := catalog.Jobs[Job](ctx, db, q)
	return cut(rows, q.Page, func(j Job) []string { return []string{id(j.ID)} }), err
}

// Count counts jobs. After and Limit do not count.
//
// Errors: as of List.
func (s Jobs) Count(ctx context.Context, db pawl.DB) (int, error) {
	s.After, s.Limit = "", 0
	q, err := s.query("job.count")
	if err != nil {
		return 0, err
	}
	count, _, err := catalog.JobCount(ctx, db, q)
	return count, err
}

func (s Jobs) query(op string) (catalog.JobQuery, error) {
	page, err := pageOf(op, s.After, s.Limit, anID)
	if err == nil {
		err = known(op, JobStatuses(), s.Statuses)
	}
	q := catalog.JobQuery{Queue: s.Queue, Kind: s.Kind, Statuses: texts(s.Statuses), Error: s.Error, OlderThan: s.OlderThan, Page: page}
	if s.NoDoubles {
		q.NotCodes = texts(doubling)
	}
	return q, err
}

// A JobRef names a job, and what you saw of it.
type JobRef struct {
	ID int64
	// Fence is that of the job as you saw it: if there has been another attempt or change since, a change verb is refused. Default: any.
	Fence int64
	// Statuses narrows what a change verb takes: a job in any other status is refused. Default: all that the verb takes.
	Statuses []Status
}

func (r JobRef) name() string { return fmt.Sprintf("job %d", r.ID) }

// Get returns everything about the job, whatever was seen of it.
//
// Errors: [pawl.ErrNotFound] if it has finished, was discarded, or was never there. Then [JobRef.Changes] and [JobRef.Archived] may still know it.
func (r JobRef) Get(ctx context.Context, db pawl.DB) (Job, error) {
	rows, err := catalog.Job[Job](ctx, db, r.ID)
	j, err := only(rows, err, "job.get", r.name())
	if err != nil {
		return j, err
	}
	j.complete()
	if j.Steps, err = catalog.StepsOfJob[Step](ctx, db, r.ID, changeLimit); err != nil {
		return Job{}, err
	}
	j.Changes, err = r.Changes(ctx, db)
	return j, err
}

// Archived returns the job as the archive keeps it for seven days after it finished, if its queue has one: see [QueueRef.SetArchive].
//
// Errors: [pawl.ErrNotFound] if its queue kept no jobs when it finished, or it is older, or has not finished.
func (r JobRef) Archived(ctx context.Context, db pawl.DB) (Job, error) {
	rows, err := catalog.ArchivedJob[Job](ctx, db, r.ID)
	j, err := only(rows, err, "job.archived", r.name()+" in the archive")
	j.complete()
	return j, err
}

// complete makes lists that were read and are empty lists, and times UTC.
func (j *Job) complete() {
	if j.Headers == nil {
		j.Headers = map[string]any{}
	}
	if j.Errors == nil {
		j.Errors = []JobError{}
	}
	if j.Payload == nil {
		j.Payload = []byte{}
	}
	for i := range j.Errors {
		j.Errors[i].At = j.Errors[i].At.UTC()
	}
}

// Changes returns what was done with the job by hand: the newest 100 records, oldest first. It knows jobs that are gone, too.
func (r JobRef) Changes(ctx context.Context, db pawl.DB) ([]Change, error) {
	return changes(ctx, db, "job", id(r.ID))
}
