package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/directive"
	"github.com/pawl-go/pawl/internal/txn"
)

// DB is a pool, a connection or your transaction. For database/sql see [pawl.SQL].
type DB = pawl.DB

// Tx is your transaction: a pgx.Tx, or a *sql.Tx through [pawl.SQLTx].
type Tx = pawl.Tx

// A Job is one claimed attempt.
type Job struct {
	ID int64
	// Fence grows by one at every claim. Pass it to systems that must reject a stale attempt.
	Fence       int64
	Queue, Kind string
	Payload     []byte
	Headers     map[string]any
	Attempt     int // including this one
	MaxAttempts int
	Crashes     int // how many processes died while they ran this job
	CreatedAt   time.Time
	Lane        string // empty: none
	Position    int64  // in its lane; grows with every job of the lane, with gaps

	ended *handlerFinish // set when the handler calls Finish; simple form only
	lent  pgx.Tx         // the transaction lent to the handler; nil in the simple form
	tied  bool           // of HandleThenTx or HandleMany: the worker ends the job
}

func byID(rows []contract.JobClaimRow) []Job {
	jobs := make([]Job, len(rows))
	for i, r := range rows {
		jobs[i] = claimed(r)
	}
	slices.SortFunc(jobs, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs
}

func claimed(r contract.JobClaimRow) Job {
	return Job{ID: r.ID, Fence: r.Fence, Queue: r.Queue, Kind: r.Kind, Payload: r.Payload, Headers: r.Headers,
		Attempt: r.Attempts, MaxAttempts: r.MaxAttempts, Crashes: r.Crashes, CreatedAt: r.CreatedAt,
		Lane: r.LanePosition.Lane, Position: r.LanePosition.Position}
}

// Hold locks the job's row and checks that this attempt still owns the job. Call it first in the
// transaction that does the work. A stale attempt then fails before it writes, and no other attempt
// can claim the job while the transaction is open.
//
// In the transaction that [HandleTx] or [HandleManyTx] lends, the worker has checked this, and Hold
// does nothing. In another transaction, Hold would wait for the lent one.
//
// Errors: [pawl.ErrFenceLost]: the transaction is aborted; drop the attempt.
func (j Job) Hold(ctx context.Context, tx Tx) error {
	if j.lent != nil && txn.Same(j.lent, tx) {
		return nil
	}
	return contract.JobHold(ctx, tx, j.ID, j.Fence)
}

// Owner returns the owner of the job's steps, for package step. It is the same at every attempt. It
// differs if a restored database gives the id to another job.
func (j Job) Owner() pawl.Owner {
	return contract.OwnerOf("job", j.Queue, fmt.Sprintf("%d@%d", j.ID, j.CreatedAt.UnixMicro()), j.ID)
}

// Finish ends the job in tx, together with the rows that the handler wrote.
//
// Errors: [pawl.ErrFenceLost]: a newer attempt owns the job, and tx is aborted. If you call Finish
// inside a savepoint and ignore the error, the rows before the savepoint survive. Do not ignore it,
// and call Hold first.
//
// If the job was in a lane, the next job may start as soon as tx has committed. If another open
// transaction has just enqueued into the lane, no job is promoted now. Inside [Handle] the worker
// promotes it after fn returns. Elsewhere the workers' lane sweep promotes it, about a second after
// that transaction ends at the latest.
//
// Call Finish only in handlers of [Handle]. In the other forms the worker ends the job, and Finish
// returns an error that makes the job a dead letter.
func (j Job) Finish(ctx context.Context, tx Tx) error {
	if j.lent != nil || j.tied {
		return pawl.Final(&pawl.Error{Op: "job.finish", Code: pawl.CodeArgumentInvalid, Err: errors.New("the worker ends the jobs of this form of handler"),
			Hint: "do not call Finish; return nil for the job, or make the handler with job.Handle"})
	}
	lanes, err := contract.JobFinish(ctx, tx, j.ID, j.Fence)
	if err == nil {
		j.ended.mark(lanes)
	}
	return err
}

// Failed is the result of a failed attempt.
type Failed struct {
	// "pending" (to be retried), "dead_letter", "cancelled" or "unknown" (waits for a verdict).
	Status      string
	AvailableAt time.Time // of the next attempt; zero after a Snooze
}

// Fail ends the attempt with cause. [RetryAfter], [Snooze], [WaitFor], [Cancel] and [pawl.Final]
// have their documented effect. Any other error schedules a retry after backoff, or makes the job a
// dead letter if no attempt is left. After [pawl.ErrOutcomeUnknown] from a step of package step,
// the job waits for a verdict.
//
// In a lane, a job that is retried keeps its turn. For the jobs behind one that ended, see
// [Job.Finish].
//
// Errors: [pawl.ErrFenceLost].
func (j Job) Fail(ctx context.Context, db DB, cause error, backoff Backoff) (Failed, error) {
	failed, _, err := j.fail(ctx, db, cause, backoff)
	return failed, err
}

func (j Job) fail(ctx context.Context, db DB, cause error, backoff Backoff) (Failed, contract.Lanes, error) {
	v := directive.Of(cause)
	if v.What == directive.Snooze {
		released, _, err := contract.JobRelease(ctx, db, j.ID, j.Fence, v.Within())
		if err == nil && !released {
			err = &pawl.Error{Op: "job.fail", Code: pawl.CodeFenceLost}
		}
		return Failed{Status: "pending"}, contract.Lanes{}, err
	}
	args := contract.JobFailArgs{Failure: contract.FailureOf(cause), Final: pawl.IsFinal(cause), Cancel: v.What == directive.Cancel,
		Unknown: errors.Is(cause, pawl.ErrOutcomeUnknown), RetryIn: backoff.After(j.Attempt)}
	if v.What == directive.RetryAfter || v.What == directive.Wait {
		args.RetryIn, args.WaitLimit = v.Within(), v.WaitLimit()
	}
	row, err := contract.JobFail(ctx, db, j.ID, j.Fence, args)
	status := row.Outcome
	if status == "retry" {
		status = "pending"
	}
	return Failed{Status: status, AvailableAt: row.AvailableAt}, row.Lanes, err
}

// Release gives the job back at once, uncharged, and reports whether this attempt still held it.
// Call it after a COMMIT without a reply: when Release returns without an error, the old
// transaction has either committed or rolled back.
func (j Job) Release(ctx context.Context, db DB) (released bool, err error) {
	released, readOn, err := contract.JobRelease(ctx, db, j.ID, j.Fence, 0)
	if err == nil {
		err = replicated(ctx, db, readOn)
	}
	return released, err
}
