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

// A failure is a job that failed alone, and the error.
type failure struct {
	job   Job
	cause error
}

// tryBatch runs one transaction: hold, call the handler, finish, commit. A nil error means that the
// database has the outcome of each job.
func (a *attempt) tryBatch(jobs []Job) error {
	var ctx context.Context = a
	w, h := a.w, a.h
	// hold: a crash here costs a retry, once the process is known to be dead. A process that
	// freezes before it is rejected when it continues. One that freezes after it keeps the rows
	// locked until the server ends the idle transaction. Only then can others claim the jobs.
	if err := fault.At("job.hold.before"); err != nil {
		return err
	}
	if jobs = a.owned(jobs); len(jobs) == 0 {
		return nil
	}
	tx, held, err := a.hold(jobs)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx, tx)
	if len(held) == 0 {
		return nil
	}
	if err := fault.At("job.handle.before"); err != nil {
		return err
	}

	// handle: a crash here costs the same. The handler's rows were never visible.
	start := time.Now()
	failures, err := a.handle(ctx, tx, held)
	if err != nil {
		return err
	}
	took := time.Since(start)

	// Failures are recorded while the rows are locked, so that no other attempt can claim them.
	failed, lanes, err := w.record(ctx, tx, h, failures)
	if err != nil {
		return err
	}
	done := without(held, failures)
	freed, err := w.finishTx(ctx, tx, done)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		w.promoter.after(jobs[0].Queue, l)
	}
	for i, f := range failures {
		w.emitFailed(ctx, f.job, failed[i], f.cause)
	}
	if len(done) > 0 {
		w.ended(ctx, done, freed, took)
	}
	return nil
}

// hold opens the transaction, locks the rows in the order of ids, and returns the jobs still owned.
func (a *attempt) hold(jobs []Job) (tx *txn.Opened, held []Job, err error) {
	var ctx context.Context = a
	w, h := a.w, a.h
	var rows []contract.JobEndRow
	step := contract.JobHoldManyStep(holdings(jobs), func(all []contract.JobEndRow) { rows = all })
	tx, err = txn.Opener{Pool: w.pool, SQL: h.sql, Limit: txn.ReplyLimit}.Open(ctx, "job.begin", "", h.policy.Timeout+w.abandon, step)
	if err != nil {
		return nil, nil, err
	}
	outcome := make(map[int64]string, len(rows))
	for _, r := range rows {
		outcome[r.ID] = r.Outcome
	}
	for _, j := range jobs {
		switch outcome[j.ID] {
		case "held":
			held = append(held, j)
		case "stale":
			if a.unanswered {
				continue
			}
			e := w.event([]Job{j}, "job.hold", &pawl.Error{Op: "job.hold", Code: pawl.CodeFenceLost})
			e.Kind = pawl.EventStaleWriteRefused
			w.emit(ctx, e)
			a.stale = append(a.stale, j.ID)
		default: // another transaction has locked it; nothing has been done yet
			w.settle(ctx, j, nil)
		}
	}
	return tx, held, nil
}

// owned returns the jobs that no newer attempt is known to own.
func (a *attempt) owned(jobs []Job) []Job {
	if len(a.stale) == 0 {
		return jobs
	}
	return slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return slices.Contains(a.stale, j.ID) })
}

// handle calls the handler for some jobs behind a savepoint. If it fails, handle calls it for each
// half. It returns the jobs that failed alone, or an error if the transaction cannot record them.
func (a *attempt) handle(ctx context.Context, tx *txn.Opened, jobs []Job) ([]failure, error) {
	returned := a.watch(jobs)
	err := tx.Guard(traceOf(ctx, jobs), a.h.policy.Timeout, func(ctx context.Context, tx pgx.Tx) error {
		return a.h.call(ctx, tx, lentTo(jobs, tx))
	})
	returned()
	if err == nil {
		return nil, nil
	}
	if errors.Is(err, txn.ErrLost) || txn.LostRace(err) || ctx.Err() != nil {
		return nil, err
	}
	if len(jobs) == 1 {
		return []failure{{jobs[0], err}}, nil
	}
	first, err := a.handle(ctx, tx, jobs[:len(jobs)/2])
	if err != nil {
		return nil, err
	}
	second, err := a.handle(ctx, tx, jobs[len(jobs)/2:])
	return append(first, second...), err
}

func (w *Worker) record(ctx context.Context, tx pgx.Tx, h *settings, failures []failure) ([]Failed, []contract.Lanes, error) {
	failed, lanes := make([]Failed, len(failures)), make([]contract.Lanes, len(failures))
	for i, f := range failures {
		var err error
		if failed[i], lanes[i], err = f.job.fail(ctx, tx, f.cause, h.policy.Backoff); err != nil {
			return nil, nil, err
		}
	}
	return failed, lanes, nil
}

// finishTx ends the remaining jobs and commits. A crash before COMMIT arrives costs a retry, and a
// crash after it nothing. It returns the lanes of the ended jobs.
func (w *Worker) finishTx(ctx context.Context, tx *txn.Opened, jobs []Job) (freed contract.Lanes, err error) {
	op, last := "job.commit", func(*pgx.Batch) {}
	if len(jobs) == 0 {
		op = "job.fail"
	} else {
		last = contract.JobFinishManyStep(holdings(jobs), false, func(all []contract.JobEndRow) { freed = all[0].Lanes })
	}
	if err := fault.At("job.commit.before"); err != nil {
		return freed, err
	}
	err = tx.CommitWith(ctx, op, last)
	switch {
	case errors.Is(err, pawl.ErrFenceLost): // the handler ended them: their rows were locked
		return freed, errEndedJob
	case err != nil:
		return freed, err
	}
	_ = fault.At("job.commit.after")
	return freed, nil
}

func holdings(jobs []Job) (all []contract.Holding) {
	for _, j := range jobs {
		all = append(all, contract.Holding{ID: j.ID, Fence: j.Fence})
	}
	return all
}

// without returns the jobs that did not fail.
func without(jobs []Job, failures []failure) []Job {
	if len(failures) == 0 {
		return jobs
	}
	return slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool {
		return slices.ContainsFunc(failures, func(f failure) bool { return f.job.ID == j.ID })
	})
}
