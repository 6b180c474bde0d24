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

// executeSimple calls the handler, then hands the job over to be finished, and reports whether it
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

// returned sees to what follows a handler of the simple form, and reports whether the job was handed over to be finished.
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

// unfinished settles a simple job whose handler failed. One that returned nil is done, also if it was recalled meanwhile.
func (a *attempt) unfinished(j Job, err error) {
	w, s := a.w, a.s
	event := w.event([]Job{j}, "job.finish", err)
	switch {
	case errors.Is(err, txn.ErrEnded) && pawl.MayHaveHappened(err):
		w.settle(s.ctx, j, pawl.Final(err)) // its rows may be durable: never again
		return
	case a.recalled():
		w.settle(s.ctx, j, nil) // who recalled it ends it, or else it goes on
		return
	case errors.Is(err, pawl.ErrFenceLost) && s.lost():
		event.Kind = pawl.EventStaleWriteRefused
	case errors.Is(err, txn.ErrAlone) && pawl.MayHaveHappened(err): // if it has not happened, that is charged
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

// databaseAway asks whether an error that looks like a broken connection is an outage of ours, which is not charged, or one
// of whatever else the handler talks to, which is.
func (w *Worker) databaseAway(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	return w.pool.Ping(ctx) != nil
}

// finish ends simple jobs whose handler is done. It keeps asking while the database is away, for as long as the lease
// lasts; after that they go back and their handler runs again.
func (w *Worker) finish(s *session, jobs []Job, took time.Duration) {
	if err := fault.At("job.finish.before"); err != nil {
		w.settleAll(s.ctx, jobs, nil)
		return
	}
	w.finishAgain(s, w.finishBatcher.finish(jobs), took)
}

// finishAgain goes on asking for what a first try did not end.
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

// finished reports the jobs that have ended. It returns why others could not be asked for.
func (w *Worker) finished(s *session, ends []*jobEnd, asked bool, took time.Duration) (err error) {
	var fresh []Job
	for _, e := range ends {
		if e.outcome == "finished" {
			fresh = append(fresh, *e.job)
			continue
		}
		event := w.event([]Job{*e.job}, "job.finish", nil)
		switch {
		case e.outcome == "stale" && asked: // an earlier try may have done it, and its reply been lost
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

// openOf returns the jobs whose end is not known.
func openOf(ends []*jobEnd) (jobs []Job) {
	for _, e := range ends {
		if e.outcome != "finished" && e.outcome != "stale" {
			jobs = append(jobs, *e.job)
		}
	}
	return jobs
}

// confirm checks what the handler says, that it finished the job in a transaction of its own: such a job cannot be
// released.
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

// handlerFinish remembers that a handler called Finish in a transaction of its own.
type handlerFinish struct {
	mu    sync.Mutex
	done  bool
	lanes contract.Lanes // read when the handler has returned
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
