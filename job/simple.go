package job

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
)

// executeSimple calls the handler, then passes the job on to be finished, and reports whether it
// did. A crash in between costs a second run of the handler.
func (a *attempt) executeSimple() (handed bool) {
	if err := fault.At("job.handle.before"); err != nil {
		a.w.settle(a.s.ctx, a.jobs[0], err)
		return false
	}
	a.jobs[0].ended = &a.ended
	unwatch := a.watch(a.jobs)
	limited, release := context.WithTimeout(a, a.h.policy.Timeout)
	a.limited, a.returns = limited, func() { release(); unwatch() }
	ctx := traceOf(limited, a.jobs)
	a.began, a.calling = time.Now(), true
	err := txn.Here(func() error { return a.h.call(ctx, nil, a.jobs) })
	a.calling = false
	return a.returned(err)
}

// continueAfterExit continues after the handler called runtime.Goexit.
func (a *attempt) continueAfterExit(err error) {
	if !a.returned(err) {
		endAll(a)
	}
}

// returned handles the handler's result, and reports whether the job goes on to be finished.
func (a *attempt) returned(err error) (handed bool) {
	err = txn.Overrun(a.limited, a.h.policy.Timeout, err)
	a.returns()
	a.took = time.Since(a.began)
	switch {
	case err != nil:
		a.unfinished(a.jobs[0], err)
	case a.ended.byItself():
		a.w.confirm(a.s, a.jobs[0], a.took)
	default:
		a.w.losses.Over(a.jobs[0].ID)
		if err := fault.At("job.finish.before"); err != nil {
			a.w.settle(a.s.ctx, a.jobs[0], nil)
			return false
		}
		if !a.producer.capacity.hand(a) {
			a.w.finishBatcher.take(a)
		}
		return true
	}
	return false
}

// unfinished settles a job whose handler failed. A recalled job whose handler succeeded is done.
func (a *attempt) unfinished(j Job, err error) {
	w, s := a.w, a.s
	event := w.event([]Job{j}, "job.finish", err)
	switch {
	case errors.Is(err, txn.ErrEnded) && pawl.MayHaveHappened(err):
		w.settle(s.ctx, j, pawl.Final(err)) // its rows may be durable: never run it again
		return
	case a.recalled():
		w.settle(s.ctx, j, nil) // a cancelled job stays cancelled
		return
	case errors.Is(err, pawl.ErrFenceLost) && s.lost():
		event.Kind = pawl.EventStaleWriteRefused
	case errors.Is(err, txn.ErrAlone) && pawl.MayHaveHappened(err): // charged if it did not commit
		event.Kind = pawl.EventCommitUnknown
		w.emit(s.ctx, event)
		w.settle(s.ctx, j, err)
		return
	case pawl.MayHaveHappened(err):
		event.Kind = pawl.EventCommitUnknown
	case pawl.Unreachable(err) && w.databaseAway(s.ctx):
		w.losses.Lost(j.ID)
		a.exclusive.Lost()
		event.Kind = pawl.EventWastedWork
	case s.lost():
		event.Kind = pawl.EventWastedWork
	default:
		w.losses.Over(j.ID)
		w.settle(s.ctx, j, err)
		return
	}
	w.giveBack(s, []Job{j}, event)
}

// databaseAway reports whether an error that looks like a broken connection is an outage of our
// database, which is not charged. An outage of another system is charged.
func (w *Worker) databaseAway(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	return w.pool.Ping(ctx) != nil
}

// finish ends jobs whose handler has returned nil. It retries while the database is unreachable,
// until the lease is lost. Then the jobs are released and their handler runs again.
func (w *Worker) finish(s *session, jobs []Job, took time.Duration) {
	if err := fault.At("job.finish.before"); err != nil {
		w.settleAll(s.ctx, jobs, nil)
		return
	}
	w.finishAgain(s, w.finishBatcher.finish(jobs), took)
}

// finishAgain retries the ends that a first call did not record.
func (w *Worker) finishAgain(s *session, ends []*jobEnd, took time.Duration) {
	for asked, wait := false, 10*time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := w.finished(s, ends, asked, took)
		jobs := openOf(ends)
		if len(jobs) == 0 {
			return
		}
		asked = asked || err != nil && !txn.Refused(err)
		event := w.event(jobs, "job.finish", err)
		if err != nil {
			event.Kind = pawl.EventError
			w.emit(s.ctx, event)
		}
		if !pace.Sleep(s.ctx, wait) {
			event.Kind = pawl.EventWastedWork
			w.emit(s.ctx, event)
			return
		}
		ends = w.finishBatcher.finish(jobs)
	}
}

// finished emits the events of the jobs that have ended. It returns the error of the others.
func (w *Worker) finished(s *session, ends []*jobEnd, asked bool, took time.Duration) (err error) {
	var fresh []Job
	for _, e := range ends {
		if e.outcome == "finished" {
			fresh = append(fresh, *e.job)
			continue
		}
		event := w.event([]Job{*e.job}, "job.finish", nil)
		switch {
		case e.outcome == "stale" && asked: // a call without a reply may have ended it
			event.Kind = pawl.EventCommitUnknown
		case e.outcome == "stale":
			event.Kind, event.Err = pawl.EventStaleWriteRefused, &pawl.Error{Op: "job.finish", Code: pawl.CodeFenceLost}
		default:
			err = e.err
			continue
		}
		w.emit(s.ctx, event)
	}
	if len(fresh) > 0 {
		event := w.event(fresh, "job.finish", nil)
		event.Kind, event.Took = pawl.EventSucceeded, took
		w.emit(s.ctx, event)
	}
	return err
}

// openOf returns the jobs whose end is unknown.
func openOf(ends []*jobEnd) (jobs []Job) {
	for _, e := range ends {
		if e.outcome != "finished" && e.outcome != "stale" {
			jobs = append(jobs, *e.job)
		}
	}
	return jobs
}

// confirm checks that the handler's own transaction finished the job: it cannot be released then.
func (w *Worker) confirm(s *session, j Job, took time.Duration) {
	event := w.event([]Job{j}, "job.finish", nil)
	released, err := j.Release(context.WithoutCancel(s.ctx), w.pool)
	switch {
	case err != nil:
		w.settle(s.ctx, j, nil)
		return
	case released:
		event.Kind, event.Err = pawl.EventWastedWork, errNotCommitted
	default:
		event.Kind, event.Took = pawl.EventSucceeded, took
		w.promoter.after(j.Queue, j.ended.lanes)
	}
	w.emit(s.ctx, event)
}

var errNotCommitted = errors.New("the handler called Finish and returned nil, but its transaction did not commit")

// handlerFinish records that a handler called Finish in its own transaction.
type handlerFinish struct {
	mu    sync.Mutex
	done  bool
	lanes contract.Lanes // read after the handler has returned
}

func (e *handlerFinish) mark(lanes contract.Lanes) {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.done, e.lanes = true, lanes
	e.mu.Unlock()
}

func (e *handlerFinish) byItself() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done
}
