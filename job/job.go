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
	"github.com/pawl-go/pawl/internal/answer"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/txn"
)

// DB is where a call is sent: a pool or connection, or your transaction. For database/sql see [pawl.SQL].
type DB = pawl.DB

// Tx is your transaction: a pgx.Tx, or a *sql.Tx through [pawl.SQLTx].
type Tx = pawl.Tx

// A Job is one claimed attempt.
type Job struct {
	ID          int64
	Fence       int64 // grows by one at every claim; pass it to whatever must refuse a stale attempt
	Queue, Kind string
	Payload     []byte
	Headers     map[string]any
	Attempt     int // this one included
	MaxAttempts int
	Crashes     int // how often a process died while it ran this job
	CreatedAt   time.Time
	Lane        string // in which it has its turn; empty: none
	Position    int64  // in its lane: grows with every job of the lane, with gaps

	ended *handlerFinish // by the handler itself, in the simple form; else nil
	lent  pgx.Tx         // the handler's, in the transactional forms; else nil
	tied  bool           // its end belongs to a transaction that the handler will be lent
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
		Lane: r.Place.Lane, Position: r.Place.Position}
}

// Hold locks the job's row and proves that this attempt still owns it. Call it first in the transaction that will do
// the work: a stale attempt stops before it writes, and nobody takes over while the transaction is open.
//
// In the transaction that [HandleTx] or [HandleManyTx] hands out this has been proved, and Hold does nothing. In another one it would
// wait for that.
//
// Errors: [pawl.ErrFenceLost]: the transaction is aborted; drop the attempt.
func (j Job) Hold(ctx context.Context, tx Tx) error {
	if j.lent != nil && txn.Same(j.lent, tx) {
		return nil
	}
	return contract.JobHold(ctx, tx, j.ID, j.Fence)
}

// Owner is the same at every attempt of the job, and not that of a job that gets the same id in another life of the database: see
// package step.
func (j Job) Owner() pawl.Owner {
	return contract.OwnerOf("job", j.Queue, fmt.Sprintf("%d@%d", j.ID, j.CreatedAt.UnixMicro()), j.ID)
}

// Finish ends the job in tx, together with what the handler wrote.
//
// Errors: [pawl.ErrFenceLost]: a newer attempt owns the job; the transaction is aborted and its rows with it. Called
// inside a savepoint whose error is swallowed, the rows before the savepoint survive: do not swallow it, and call Hold
// first.
//
// If the job was in a lane, the next one may start as soon as tx has committed. If another transaction has just enqueued
// into the lane and is still open, nobody is promoted now; inside of [Handle] the worker sees to it when fn has returned,
// elsewhere the lane sweep of the workers does, within about a second of that transaction's end.
//
// Only handlers of [Handle] call it: in the other forms the worker ends the job. There it is an error that ends the job as a dead letter.
func (j Job) Finish(ctx context.Context, tx Tx) error {
	if j.lent != nil || j.tied {
		return pawl.Final(&pawl.Error{Op: "job.finish", Code: pawl.CodeArgumentInvalid, Err: errors.New("the job ends with the transaction that its handler is handed"),
			Hint: "do not call Finish in HandleTx or another form with a transaction; return nil"})
	}
	lanes, err := contract.JobFinish(ctx, tx, j.ID, j.Fence)
	if err == nil {
		j.ended.mark(lanes)
	}
	return err
}

// Failed says what became of a failed attempt.
type Failed struct {
	Status      string    // "pending": it will be tried again; "dead_letter" or "cancelled": it will not; "unknown": it waits for a verdict
	AvailableAt time.Time // of the next try; zero after a Snooze
}

// Fail ends the attempt as cause says: [RetryAfter], [Snooze], [Cancel] and [pawl.Final] do what they say, and any other
// error means another try after backoff, or the dead letters if none is left. [pawl.ErrOutcomeUnknown], of a step in package step,
// means that the job waits until somebody has found out.
//
// In a lane a job that is tried again keeps its turn. See [Job.Finish] for what follows one that has ended.
//
// Errors: [pawl.ErrFenceLost].
func (j Job) Fail(ctx context.Context, db DB, cause error, backoff Backoff) (Failed, error) {
	failed, _, err := j.fail(ctx, db, cause, backoff)
	return failed, err
}

func (j Job) fail(ctx context.Context, db DB, cause error, backoff Backoff) (Failed, contract.Lanes, error) {
	v := answer.Of(cause)
	if v.What == answer.Snooze {
		released, _, err := contract.JobRelease(ctx, db, j.ID, j.Fence, v.Within())
		if err == nil && !released {
			err = &pawl.Error{Op: "job.fail", Code: pawl.CodeFenceLost}
		}
		return Failed{Status: "pending"}, contract.Lanes{}, err
	}
	args := contract.JobFailArgs{Failure: contract.FailureOf(cause), Final: pawl.IsFinal(cause), Cancel: v.What == answer.Cancel,
		Unknown: errors.Is(cause, pawl.ErrOutcomeUnknown), RetryIn: backoff.After(j.Attempt)}
	if v.What == answer.RetryAfter {
		args.RetryIn = v.Within()
	}
	row, err := contract.JobFail(ctx, db, j.ID, j.Fence, args)
	status := row.Outcome
	if status == "retry" {
		status = "pending"
	}
	return Failed{Status: status, AvailableAt: row.AvailableAt}, row.Lanes, err
}

// Release gives the job back at once, uncharged, and reports whether it was still held. After a lost reply to COMMIT
// this is the way to find out: whatever the old transaction did is settled when Release answers without an error.
func (j Job) Release(ctx context.Context, db DB) (released bool, err error) {
	released, readOn, err := contract.JobRelease(ctx, db, j.ID, j.Fence, 0)
	if err == nil {
		err = proved(ctx, db, readOn)
	}
	return released, err
}
