package ops

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/verdict"
)

// Retry makes the job due now with all its attempts before it: a dead letter, a cancelled job, or a pending one that waits for
// its next try. It is the same job and the same intent. Its errors stay in its history.
//
// Errors: [pawl.ErrArgumentInvalid]; 55P03, and [pawl.Retryable], if an open transaction has the job's row locked.
func (r JobRef) Retry(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.change(ctx, db, "job.retry", contract.JobRetry, by)
}

// Cancel ends the job if it has not ended, and keeps it to be retried or discarded. A running attempt is fenced out: it cannot
// commit any more, and its worker is told at the next heartbeat. Effects outside the database cannot be called back.
//
// An attempt with an open transaction has the job's row locked. On a pool or connection, Cancel asks its worker to end the attempt. That
// takes as long as the handler needs to notice the end of its context, and is given up after 8 s. In a transaction of yours the worker could not hear
// it before you commit, so it is not asked.
//
// Errors: as of Retry.
func (r JobRef) Cancel(ctx context.Context, db pawl.DB, by By) (Result, error) {
	const op = "job.cancel"
	result, err := r.change(ctx, db, op, contract.JobCancel, by)
	_, inTx := db.(pawl.Tx)
	for asked, held := 0, true; held && asked < recalls && !inTx && !by.dryRun && verdict.IsBusy(pawl.CodeOf(err)); asked++ {
		var e error
		if held, e = contract.JobRecall(ctx, db, r.ID); e != nil {
			return Result{}, errors.Join(err, e)
		}
		result, err = r.change(ctx, db, op, contract.JobCancel, by) // also if no worker has it now: it may have ended since
	}
	return result, err
}

// recalls bounds how often a worker is asked to end a handler before its job is cancelled or said to be locked: each time
// waits 2 s for the lock.
const recalls = 4

// Discard deletes the job if no attempt holds it, its payload and its errors with it. The memory of its key stays: what comes
// again under it is a duplicate.
//
// Errors: as of Retry.
func (r JobRef) Discard(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return r.change(ctx, db, "job.discard", contract.JobDiscard, by)
}

// change runs a verb of one job.
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
