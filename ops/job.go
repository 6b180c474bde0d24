package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Job is one job. Only Get reads the fields from Headers on.
type Job struct {
	ID          int64     `json:"id"`
	Queue       string    `json:"queue"`
	Kind        string    `json:"kind"`
	Status      Status    `json:"status"`
	Priority    int       `json:"priority"`     // 1 is the highest
	Attempts    int       `json:"attempts"`     // used, including the running one
	MaxAttempts int       `json:"max_attempts"` // 0: the job has finished
	Crashes     int       `json:"crashes"`      // deaths of processes that were running it
	Fence       int64     `json:"fence"`
	AvailableAt time.Time `json:"available_at,omitzero"` // the earliest time to run
	CreatedAt   time.Time `json:"created_at"`
	// worker of the running attempt; empty: none, or it was claimed without a worker
	Worker    string `json:"worker,omitzero"`
	LastError string `json:"last_error,omitzero"`
	// of that error: a SQLSTATE, "crash", "mismatch" ([CodeMismatch]), or empty
	LastCode      string `json:"last_code,omitzero"`
	PayloadOctets int    `json:"payload_octets"`
	// whose jobs run one at a time; empty: none
	Lane string `json:"lane,omitzero"`
	// of the delivery stored in it; empty: none, or it had no key
	Key string `json:"key,omitzero" col:"message_key"`
	// the database's clock when the row was read; compute ages from it
	ReadAt time.Time `json:"read_at"`

	Headers map[string]any `json:"headers,omitzero" col:"get"`
	Payload []byte         `json:"payload,omitzero" col:"get"`
	// the last 10, oldest first
	Errors     []JobError `json:"errors,omitzero" col:"get"`
	Position   int64      `json:"position,omitzero" col:"get"`    // in the lane
	FinishedAt time.Time  `json:"finished_at,omitzero" col:"get"` // of an archived job
	// zero: no attempt is running
	LeaseExpiresAt time.Time `json:"lease_expires_at,omitzero" col:"get"`
	// 0: none, or it was claimed without a worker
	WorkerID     int64     `json:"worker_id,omitzero" col:"get"`
	WorkerSeenAt time.Time `json:"worker_seen_at,omitzero" col:"get"` // last heartbeat
	// it holds a presence lock, so its death is noticed before the lease expires
	WorkerPresence bool `json:"worker_presence,omitzero" col:"get"`
	// its calls to other systems, at most 100
	Steps []Step `json:"steps,omitzero" col:"-"`
	// by operators: the newest 100, oldest first
	Changes []Change `json:"changes,omitzero" col:"-"`
}

// Ref returns a reference to the job as it was read.
func (j Job) Ref() JobRef { return JobRef{ID: j.ID, Fence: j.Fence, Statuses: []Status{j.Status}} }

// MayDouble reports whether a retry of the dead letter may take effect a second time. That is so in
// three cases. The delivery used a known key with another payload and has not been retried. The
// delivery arrived after its key may have been forgotten. The handler ended the transaction it was
// lent, so its writes may be durable although the attempt failed ([pawl.CodeCommitUnknown]).
//
// A delivery that could not be identified is none of these: its retry claims its key first. If it
// then turns out to be one of these cases, it becomes such a dead letter and its handler is not
// called.
func (j Job) MayDouble() bool {
	return j.Status == StatusDeadLetter && slices.Contains(doubling, pawl.Code(j.LastCode))
}

// CodeMismatch is the LastCode of a delivery that used a known key with another payload. A handler
// that returns [pawl.ErrKeyReused] from a call of its own also leaves that code.
const CodeMismatch pawl.Code = contract.CodeMismatch

// doubling lists the codes of jobs that MayDouble.
var doubling = []pawl.Code{CodeMismatch, pawl.CodeDeliveryStale, pawl.CodeCommitUnknown}

// A JobError describes how one attempt ended.
type JobError struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Code    string    `json:"code,omitzero"` // a SQLSTATE, "crash", or empty
	Error   string    `json:"error"`
	// of the attempt; 0: a consumer's, before the delivery was a job
	Fence  int64  `json:"fence,omitzero"`
	Worker string `json:"worker,omitzero"` // its name, if it had a row when the attempt ended

	// of an attempt that lost its job because its lease expired
	LeaseEndedAt time.Time `json:"lease_ended_at,omitzero"`
}

// Jobs selects unfinished jobs. The zero value selects all.
type Jobs struct {
	Queue, Kind string
	Statuses    []Status // empty: any; for RetryAll and DiscardAll: dead letters
	Error       string   // only jobs whose last error contains this text
	// without jobs whose retry may take effect a second time: see [Job.MayDouble]
	NoDoubles bool
	OlderThan time.Duration // only jobs enqueued longer ago than this; 0: any
	After     string        // only rows after this one: [Page.Next] of the previous page
	Limit     int           // for List: default 50, at most 1000
}

// List returns jobs ordered by id.
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

// Count counts jobs. It ignores After and Limit.
//
// Errors: those of List.
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
	if s.OlderThan < 0 { // else it would select all
		return catalog.JobQuery{}, &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid,
			Err: fmt.Errorf("the OlderThan must not be negative, it is %v", s.OlderThan), Hint: "leave it out for jobs of any age"}
	}
	q := catalog.JobQuery{Queue: s.Queue, Kind: s.Kind, Statuses: texts(s.Statuses), Error: s.Error, OlderThan: s.OlderThan, Page: page}
	if s.NoDoubles {
		q.NotCodes = texts(doubling)
	}
	return q, cmp.Or(err, checkStatuses(op, JobStatuses(), s.Statuses))
}

// A JobRef identifies a job, and may hold what you saw of it.
type JobRef struct {
	ID int64
	// Fence is the job's fence as you saw it. If another attempt or change has happened since, a
	// change verb is refused. Default: any.
	Fence int64
	// Statuses restricts a change verb: a job in another status is refused. Default: all that the
	// verb accepts.
	Statuses []Status
}

func (r JobRef) name() string { return fmt.Sprintf("job %d", r.ID) }

// Get returns everything about the job. It ignores Fence and Statuses.
//
// Errors: [pawl.ErrNotFound] if the job has finished, was discarded, or never existed. Then
// [JobRef.Changes] and [JobRef.Archived] may still know it.
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

// Archived returns a finished job from the archive, which keeps it for seven days if its queue has
// one: see [QueueRef.SetArchive].
//
// Errors: [pawl.ErrNotFound] if the queue had no archive when the job finished, the job is older,
// or it has not finished.
func (r JobRef) Archived(ctx context.Context, db pawl.DB) (Job, error) {
	rows, err := catalog.ArchivedJob[Job](ctx, db, r.ID)
	j, err := only(rows, err, "job.archived", r.name()+" in the archive")
	j.complete()
	return j, err
}

// complete makes nil lists empty and times UTC.
func (j *Job) complete() {
	if j.Headers == nil {
		j.Headers = map[string]any{}
	}
	j.Errors, j.Payload = listed(j.Errors), listed(j.Payload)
	for i := range j.Errors {
		j.Errors[i].At = j.Errors[i].At.UTC()
	}
}

// Changes returns the newest 100 audit records of the job, oldest first. It works for deleted jobs
// too.
func (r JobRef) Changes(ctx context.Context, db pawl.DB) ([]Change, error) {
	return changes(ctx, db, "job", id(r.ID))
}
