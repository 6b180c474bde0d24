package job

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// errOwn is a failure of the handler, after which its transaction was rolled back. It is charged.
type errOwn struct{ error }

func (e errOwn) Unwrap() error { return e.error }

// errEndedJob is the failure of a handler that ended its job with SQL. The second end is rejected.
var errEndedJob = errOwn{errors.New("the handler ended its job itself; the transaction that it was lent does that")}

// tryOne runs one transaction: end the job, call the handler, close, commit. A nil error means that
// the database has the outcome. After an errOwn, this attempt still owns the job.
func (a *attempt) tryOne() error {
	var ctx context.Context = a
	w, h, j := a.w, a.h, a.jobs[0]
	// open: a crash here costs a retry, once the process is known to be dead. A process that
	// freezes before job_open is rejected when it continues. One that freezes after it keeps the
	// row locked until the server ends the idle transaction. Only then can others claim the job.
	if err := fault.At("job.hold.before"); err != nil {
		return err
	}
	var opened contract.JobOpenRow
	tx, err := txn.Opener{Pool: w.pool, SQL: h.sql, Limit: txn.ReplyLimit}.Start(ctx, "job.begin", "", contract.JobOpenStep(j.ID, j.Fence, h.policy.Timeout+w.abandon, &opened))
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx, tx)
	if err := fault.At("job.handle.before"); err != nil {
		return err
	}

	// handle: a crash here costs the same. The handler's rows were never visible.
	start := time.Now()
	returned := a.watch(a.jobs)
	lend := func(ctx context.Context, limit time.Duration, fn func(context.Context, pgx.Tx) error) error {
		return tx.Lend(ctx, limit, opened.Xact, fn)
	}
	// The effect could be committed without the end. A savepoint detects that also after an error.
	if opened.Outcome == "kept" {
		lend = tx.Guard
	}
	err = lend(traceOf(ctx, a.jobs), h.policy.Timeout, func(ctx context.Context, tx pgx.Tx) error {
		return h.call(ctx, tx, lentTo(a.jobs, tx))
	})
	returned()
	switch {
	case err == nil:
	case errors.Is(err, txn.ErrLost) && (!errors.Is(err, txn.ErrEnded) || pawl.MayHaveHappened(err)), ctx.Err() != nil:
		return err
	default:
		return errOwn{err}
	}
	took := time.Since(start)

	// commit: a crash before COMMIT arrives costs a retry. A crash after it costs nothing.
	if err := fault.At("job.commit.before"); err != nil {
		return err
	}
	var freed contract.Lanes
	last := contract.JobCloseStep(j.ID, j.Fence, &opened, &freed)
	// job_close would find nothing to reject, and no lane.
	if opened.Outcome == "ended" && opened.Lane == nil && tx.Unbroken() {
		last = func(*pgx.Batch) {}
	}
	err = tx.CommitWith(ctx, "job.commit", last)
	switch {
	case errors.Is(err, pawl.ErrFenceLost):
		return errEndedJob
	case err != nil:
		return err
	}
	_ = fault.At("job.commit.after")
	w.ended(ctx, a.jobs, freed, took)
	return nil
}

// ended emits the event of jobs that succeeded, and promotes the jobs behind them in their lanes.
// If the process dies before it, those wait about a second for a lane sweep.
func (w *Worker) ended(ctx context.Context, jobs []Job, freed contract.Lanes, took time.Duration) {
	w.promoter.after(jobs[0].Queue, freed)
	e := w.event(jobs, "job.commit", nil)
	e.Kind, e.Took = pawl.EventSucceeded, took
	w.emit(ctx, e)
}

// lentTo returns copies of the jobs for a handler that is lent tx.
func lentTo(jobs []Job, tx pgx.Tx) []Job {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		jobs[i].lent = tx
	}
	return jobs
}
