package job

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/contract"
)

// A Job is one claimed attempt.
type Job struct {
	ID          int64
	Fence       int64 // grows by one at every claim; pass it to whatever must refuse a stale attempt
	Queue, Kind string
	Args        []byte
	Headers     map[string]any
	Attempt     int // this one included
	MaxAttempts int
	Crashes     int // how often a process died while it ran this job
	CreatedAt   time.Time
}

// Claim takes up to limit due jobs (1 to 500) for a registered worker, oldest id first. A job that was running when a
// process died comes alone; run it alone. [Worker] does all this; Claim is for building something else.
//
// Errors: [pawl.ErrFenceLost] if the worker has lost its lease.
func Claim(ctx context.Context, db DB, queue string, worker int64, limit int) ([]Job, error) {
	rows, err := contract.JobClaim(ctx, db, queue, worker, limit, nil)
	if err != nil {
		return nil, err
	}
	jobs := make([]Job, len(rows))
	for i, r := range rows {
		jobs[i] = Job{ID: r.ID, Fence: r.Fence, Queue: queue, Kind: r.Kind, Args: r.Args, Headers: r.Headers,
			Attempt: r.Attempts, MaxAttempts: r.MaxAttempts, Crashes: r.Crashes, CreatedAt: r.CreatedAt}
	}
	slices.SortFunc(jobs, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs, nil
}

// Hold locks the job's row and proves that this attempt still owns it. Call it first in the transaction that will do
// the work: a stale attempt stops before it writes, and nobody takes over while the transaction is open.
//
// Errors: [pawl.ErrFenceLost]: the transaction is aborted; drop the attempt.
func (j Job) Hold(ctx context.Context, tx pgx.Tx) error {
	return contract.JobHold(ctx, tx, j.ID, j.Fence)
}

// Finish ends the job in tx, together with what the handler wrote.
//
// Errors: [pawl.ErrFenceLost]: a newer attempt owns the job; the transaction is aborted and its rows with it. Called
// inside a savepoint whose error is swallowed, the rows before the savepoint survive: do not swallow it.
func (j Job) Finish(ctx context.Context, tx pgx.Tx) error {
	return contract.JobFinish(ctx, tx, j.ID, j.Fence)
}

// Failed says what became of a failed attempt.
type Failed struct {
	DeadLetter  bool      // no try is left
	AvailableAt time.Time // of the next try
}

// Fail ends the attempt badly: another try after retryIn, or the dead letters if none is left or final is true.
//
// Errors: [pawl.ErrFenceLost].
func (j Job) Fail(ctx context.Context, db DB, cause error, retryIn time.Duration, final bool) (Failed, error) {
	row, err := contract.JobFail(ctx, db, j.ID, j.Fence,
		contract.JobFailArgs{Failure: contract.FailureOf(cause), RetryIn: retryIn, Final: final})
	return Failed{DeadLetter: row.Outcome == "dead_letter", AvailableAt: row.AvailableAt}, err
}

// Release gives the job back at once, uncharged, and reports whether it was still held. After a lost reply to COMMIT
// this is the way to find out: whatever the old transaction did is settled when Release answers without an error.
func (j Job) Release(ctx context.Context, db DB) (released bool, err error) {
	return contract.JobRelease(ctx, db, j.ID, j.Fence, 0)
}
