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

// errOwn is the failure of a handler whose transaction was rolled back, and not that of the transaction: it is charged.
type errOwn struct{ error }

func (e errOwn) Unwrap() error { return e.error }

// errEndedJob is the failure of a handler that ended its job itself, by SQL: the database refuses the second end.
var errEndedJob = errOwn{errors.New("the handler ended its job itself, which the transaction that it was handed does")}

// tryOne is one transaction: end the job, handle, close, commit. A nil error means that the database holds the outcome. With an
// error of its own the row is back, processing, and still ours.
func (a *attempt) tryOne() error {
	var ctx context.Context = a
	w, h, j := a.w, a.h, a.jobs[0]
	// open: a crash here costs a retry once the process is known to be dead. A process that freezes before it is refused
	// when it wakes; one that freezes after it keeps the row until the server ends the silent transaction, and only then
	// is taken over.
	if err := fault.At("job.hold.before"); err != nil {
		return err
	}
	var opened contract.JobOpenRow
	tx, err := txn.Opener{Pool: w.pool, SQL: h.sql, Limit: txn.AnswerLimit}.Start(ctx, "job.begin", "", contract.JobOpenStep(j.ID, j.Fence, h.policy.Timeout+w.abandon, &opened))
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx, tx)
	if err := fault.At("job.handle.before"); err != nil {
		return err
	}

	// handle: a crash here costs the same; neither the handler's rows nor the end of the job were ever visible.
	start := time.Now()
	returned := a.watch(a.jobs)
	lend := func(ctx context.Context, limit time.Duration, fn func(context.Context, pgx.Tx) error) error {
		return tx.Lend(ctx, limit, opened.Xact, fn)
	}
	if opened.Outcome == "kept" { // the effect could be committed without the end: behind a savepoint, that is found out also on an error
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

	// commit: before COMMIT arrives a crash costs a retry, after it nothing.
	if err := fault.At("job.commit.before"); err != nil {
		return err
	}
	var freed contract.Lanes
	last := contract.JobCloseStep(j.ID, j.Fence, &opened, &freed)
	if opened.Outcome == "ended" && opened.Lane == nil && tx.Unbroken() { // it would find nothing to refuse, and no lane
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

// ended emits the event of jobs that have ended well, and has those behind them in their lanes
// promoted. A crash before it costs those a second, until a lane sweep.
func (w *Worker) ended(ctx context.Context, jobs []Job, freed contract.Lanes, took time.Duration) {
	w.promoter.after(jobs[0].Queue, freed)
	e := w.event(jobs, "job.commit", nil)
	e.Kind, e.Took = pawl.EventSucceeded, took
	w.emit(ctx, e)
}

// lentTo returns the jobs as a handler gets them, which is lent tx.
func lentTo(jobs []Job, tx pgx.Tx) []Job {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		jobs[i].lent = tx
	}
	return jobs
}
