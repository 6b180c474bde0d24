package job

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/txn"
)

// attempt runs claimed jobs of one kind to an end the database knows of, or leaves them to be settled later: one job, or a
// batch. They are inside the process's gate, as ordinary entrants, since before they were claimed. It reports whether they ran: a
// suspect goes back if the process has another.
func (w *Worker) attempt(s *session, h Handler, jobs []Job) (ran bool) {
	leave := sync.OnceFunc(func() { solo.Process.Leave(len(jobs)) })
	if jobs[0].Crashes > 0 {
		var ok bool
		if leave, ok = w.isolate(s, h, jobs[0]); !ok {
			leave()
			return false
		}
	}
	defer leave()
	ctx, forget := s.enter(jobs)
	defer forget()
	switch h.form {
	case simple:
		w.attemptSimple(ctx, s, h, jobs[0], leave)
	case many:
		w.attemptMany(ctx, s, h, jobs, leave)
	case then:
		w.attemptThen(ctx, s, h, jobs[0], leave)
	default:
		w.attemptTx(ctx, s, h, jobs, leave)
	}
	return true
}

// attemptTx runs the transaction, again if it lost a race, and settles what it leaves open.
func (w *Worker) attemptTx(ctx context.Context, s *session, h Handler, jobs []Job, leave func()) {
	select {
	case w.conns <- struct{}{}:
		defer func() { <-w.conns }()
	case <-ctx.Done():
		w.settleAll(ctx, jobs, nil)
		return
	}
	err := txn.Restart(ctx, func() error {
		if h.form == batch {
			return w.tryBatch(ctx, h, jobs, leave)
		}
		return w.tryOne(ctx, h, jobs[0], leave)
	})
	if err == nil {
		return
	}
	var own errOwn
	event := w.event(jobs, "job.finish", err)
	switch {
	case errors.Is(err, txn.ErrEnded) && pawl.MayHaveHappened(err):
		w.settleAll(s.ctx, jobs, pawl.Final(err)) // its rows may be durable while the job is not finished: never again
		return
	case recalled(ctx):
		w.settleAll(s.ctx, jobs, nil) // who recalled it ends it, or else it goes on
		return
	case errors.As(err, &own):
		w.settleAll(s.ctx, jobs, own.error)
		return
	case errors.Is(err, pawl.ErrFenceLost):
		event.Kind = pawl.EventStaleWriteRefused
	case pawl.MayHaveHappened(err):
		event.Kind = pawl.EventCommitUnknown
	case s.lost(), pawl.Unreachable(err), pawl.CodeOf(err) == "55P03":
		event.Kind = pawl.EventWastedWork // the session, the database or whoever has locked the row: uncharged
	default:
		w.settleAll(s.ctx, jobs, err)
		return
	}
	w.giveBack(s, jobs, event)
}

// giveBack reports why an attempt came to nothing and releases its jobs, which is the question and the answer in one.
func (w *Worker) giveBack(s *session, jobs []Job, why pawl.Event) {
	w.emit(s.ctx, why)
	if why.Kind == pawl.EventWastedWork {
		pace.Sleep(s.ctx, w.cfg.Backoff.After(1)) // what took the database away may be this very job: not again at once
	}
	w.settleAll(s.ctx, jobs, nil)
}

// watch gives up on a handler that ignores the end of its context: its jobs fail like any other, and suspects need not
// wait for it. What it does later is refused by the fence. Its slot stays taken, and its goroutine, until it returns.
func (w *Worker) watch(ctx context.Context, h Handler, jobs []Job, leave func()) *time.Timer {
	return solo.Abandon(h.policy.Timeout+w.abandon, func() {
		leave()
		w.settleAll(ctx, jobs, errIgnored)
	})
}

var errIgnored = errors.New("the handler ignored the end of its context and was left behind")

// event describes jobs that share a fate.
func (w *Worker) event(jobs []Job, op string, err error) pawl.Event {
	e := pawl.Event{Op: op, Scope: jobs[0].Queue, JobID: jobs[0].ID, JobKind: jobs[0].Kind, Attempt: jobs[0].Attempt, Err: err}
	if len(jobs) > 1 {
		e.Count = len(jobs)
	}
	return e
}

// emitFailed reports what the database made of a failure.
func (w *Worker) emitFailed(ctx context.Context, j Job, failed Failed, cause error) {
	e := w.event([]Job{j}, "job.fail", cause)
	switch {
	case failed.Status == "dead_letter":
		e.Kind = pawl.EventFinal
	case failed.Status == "cancelled":
		e.Kind = pawl.EventCancelled
	case failed.Status == "unknown":
		e.Kind = pawl.EventUnknown
	case answerOf(cause).what == snooze:
		e.Kind = pawl.EventSnoozed
	default:
		e.Kind = pawl.EventRetryable
	}
	w.emit(ctx, e)
}
