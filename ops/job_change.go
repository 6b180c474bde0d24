package ops

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/verdict"
)

// Retry makes a job due now and resets its attempts: a dead letter, a cancelled job, or a pending
// job that waits for its next attempt. It stays the same job with the same intent, and keeps its
// error history.
//
// Errors: [pawl.ErrArgumentInvalid]; 55P03, which is [pawl.Retryable], if an open transaction has
// locked the job's row.
func (r JobRef) Retry(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.change(ctx, db, "job.retry", contract.JobRetry, by)
}

// Cancel ends the job if it has not ended, and keeps it, to be retried or discarded. A running
// attempt can no longer commit; its worker learns of it with its next heartbeat. Effects outside
// the database are not undone.
//
// An attempt with an open transaction has locked the job's row. On a pool or connection, Cancel
// then asks the worker to end the attempt. It waits until the handler notices the end of its
// context, for at most 8 s. In your own transaction it does not ask, because the worker would not
// see the request before you commit.
//
// Errors: those of Retry.
func (r JobRef) Cancel(ctx context.Context, db pawl.DB, by By) (Result, error) {
	const op = "job.cancel"
	result, err := r.change(ctx, db, op, contract.JobCancel, by)
	_, inTx := db.(pawl.Tx)
	for asked, held := 0, true; held && asked < recalls && !inTx && !by.dryRun && verdict.IsBusy(pawl.CodeOf(err)); asked++ {
		var e error
		if held, e = contract.JobRecall(ctx, db, r.ID); e != nil {
			return Result{}, errors.Join(err, e)
		}
		// also if no worker has it now: it may have ended since
		result, err = r.change(ctx, db, op, contract.JobCancel, by)
	}
	return result, err
}

// recalls bounds how often Cancel asks the worker before it returns that the job is locked. Each
// time it waits 2 s for the lock.
const recalls = 4

// Discard deletes the job with its payload and errors, if no attempt holds it. Its key stays
// remembered: a copy under the key is a duplicate.
//
// Errors: those of Retry.
func (r JobRef) Discard(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.change(ctx, db, "job.discard", contract.JobDiscard, by)
}

func (r JobRef) change(ctx context.Context, db pawl.DB, op string, verb jobVerb, by By) (Result, error) {
	return by.once(ctx, db, op, func(db pawl.DB) (Result, error) {
		row, err := verb(ctx, db, r.ID, r.args(by))
		return Result{Outcome: Outcome(row.Outcome), JobID: r.ID, Was: row.Status, Hint: row.Hint}, err
	})
}

type jobVerb = func(ctx context.Context, db pawl.DB, id int64, a contract.OperateArgs) (contract.OperateRow, error)

func (r JobRef) args(by By) contract.OperateArgs {
	a := contract.OperateArgs{Actor: by.Actor, Reason: by.Reason, From: texts(r.Statuses)}
	if r.Fence != 0 {
		a.Fence = &r.Fence
	}
	return a
}
