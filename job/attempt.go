package job

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/txn"
)

// attempt runs one claimed job to an end the database knows of, or leaves it to be settled later.
func (w *Worker) attempt(s *session, j Job) {
	leave, err := solo.Process.Enter(s.ctx, j.Crashes > 0)
	if err != nil {
		w.settle(s.ctx, j, nil)
		return
	}
	leave = sync.OnceFunc(leave)
	defer leave()
	err = txn.Restart(s.ctx, func() error { return w.try(s.ctx, j, leave) })
	event := pawl.Event{Op: "job.finish", JobID: j.ID, Attempt: j.Attempt, Err: err}
	switch {
	case err == nil:
		return
	case errors.Is(err, txn.ErrEnded) && pawl.MayHaveHappened(err):
		w.settle(s.ctx, j, pawl.Final(err)) // its rows may be durable while the job is not finished: never again
		return
	case errors.Is(err, pawl.ErrFenceLost):
		event.Kind = pawl.EventStaleWriteRefused
	case pawl.MayHaveHappened(err):
		event.Kind = pawl.EventCommitUnknown
	case s.lost(), pawl.Unreachable(err), pawl.CodeOf(err) == "55P03":
		event.Kind = pawl.EventWastedWork // the session, the database or whoever has locked the row: uncharged
	default:
		w.settle(s.ctx, j, err)
		return
	}
	w.emit(s.ctx, event)
	if event.Kind == pawl.EventWastedWork {
		pause(s.ctx, w.cfg.Backoff.After(1)) // what took the database away may be this very job: not again at once
	}
	w.settle(s.ctx, j, nil) // releasing is the question and the answer in one
}

// try is one transaction: hold, handle, finish, commit. A nil error means the database holds the outcome, good or bad.
func (w *Worker) try(ctx context.Context, j Job, leave func()) error {
	tx, err := txn.Begin(ctx, w.pool, "job.begin", w.cfg.Timeout+w.abandon)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx, tx)

	// hold: a crash here costs a retry after the lease. A process that freezes before it is refused when it wakes; one
	// that freezes after it keeps the row until the server ends the silent transaction, and only then is taken over.
	if err := fault.At("job.hold.before"); err != nil {
		return err
	}
	if err := j.Hold(ctx, tx); err != nil {
		return err
	}
	if err := fault.At("job.handle.before"); err != nil {
		return err
	}

	// handle: a crash here costs the same; the handler's rows were never visible.
	start := time.Now()
	overdue := w.watch(ctx, j, leave)
	failure := txn.Guard(ctx, tx, w.cfg.Timeout, func(ctx context.Context, tx pgx.Tx) error {
		return w.cfg.Handler(ctx, tx, j)
	})
	overdue.Stop()
	took := time.Since(start)
	if failure != nil {
		return w.record(ctx, tx, j, failure)
	}

	// finish and commit: before COMMIT arrives a crash costs a retry, after it nothing.
	if err := j.Finish(ctx, tx); err != nil {
		return err
	}
	if err := fault.At("job.commit.before"); err != nil {
		return err
	}
	if err := txn.Commit(ctx, "job.commit", tx); err != nil {
		return err
	}
	_ = fault.At("job.commit.after")
	w.emit(ctx, pawl.Event{Kind: pawl.EventFresh, Op: "job.commit", JobID: j.ID, Attempt: j.Attempt, Took: took})
	return nil
}

// watch gives up on a handler that ignores the end of its context: its job fails like any other, and suspects need not
// wait for it. What it does later is refused by the fence. Its slot stays taken, and its goroutine, until it returns.
func (w *Worker) watch(ctx context.Context, j Job, leave func()) *time.Timer {
	return time.AfterFunc(w.cfg.Timeout+w.abandon, func() {
		leave()
		w.settle(ctx, j, errIgnored)
	})
}

var errIgnored = errors.New("the handler ignored the end of its context and was left behind")

// record writes the failure in the transaction that held the job, its savepoint rolled back: nobody can win in between.
// What it cannot record there it returns.
func (w *Worker) record(ctx context.Context, tx pgx.Tx, j Job, failure error) error {
	code := pawl.CodeOf(failure)
	if errors.Is(failure, txn.ErrLost) || code == "40001" || code == "40P01" || ctx.Err() != nil {
		return failure
	}
	failed, err := j.Fail(ctx, tx, failure, w.cfg.Backoff.After(j.Attempt), pawl.IsFinal(failure))
	if err != nil {
		return err
	}
	if err := txn.Commit(ctx, "job.fail", tx); err != nil {
		return err
	}
	w.emitFailed(ctx, j, failed, failure)
	return nil
}

func (w *Worker) emitFailed(ctx context.Context, j Job, failed Failed, cause error) {
	kind := pawl.EventRetryable
	if failed.DeadLetter {
		kind = pawl.EventFinal
	}
	w.emit(ctx, pawl.Event{Kind: kind, Op: "job.fail", JobID: j.ID, Attempt: j.Attempt, Err: cause})
}
