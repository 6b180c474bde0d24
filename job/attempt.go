package job

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/directive"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/progress"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
)

// An attempt runs a claimed job, or a batch of one kind, until its outcome is recorded or left to
// keepSettling. It enters the process's isolator before the claim, as one entrant for each job.
type attempt struct {
	context.Context // of its handler
	cancel          context.CancelCauseFunc
	w               *Worker
	producer        *producer      // has one slot for each job; nil after an exchange reused them
	loop            *progress.Loop // of the producer, in the Run that claimed the jobs
	s               *session
	h               *settings
	jobs            []Job
	executed        bool          // false if a suspect was put back
	over            chan struct{} // closed at the end of the attempt; nil without a waiter

	leave func()      // of a suspect: leaves the isolator
	left  atomic.Bool // ordinary entrants have left the isolator

	running atomic.Pointer[[]Job] // the jobs whose handler is called, until it returns

	exclusive verdict.Exclusive

	calling bool            // a simple handler has not returned
	limited context.Context // the simple handler's context
	returns func()          // releases limited and the watch
	began   time.Time
	took    time.Duration // by the simple handler
	ended   handlerFinish
	ending  jobEnd

	unanswered bool    // a COMMIT had no reply: if the fence is then lost, it has ended the jobs
	stale      []int64 // the jobs of a batch that newer attempts own, as was reported
}

// Value returns the attempt's Exclusive for its key, to the code that the handler calls.
func (a *attempt) Value(key any) any {
	if key == (verdict.ExclusiveKey{}) {
		return &a.exclusive
	}
	return a.Context.Value(key)
}

// execute runs the attempt until it has ended or was passed to the finishBatcher.
func (a *attempt) execute() {
	over := true
	defer func() {
		switch {
		case a.calling:
			go a.continueAfterExit(txn.ErrExited) // the handler has exited this goroutine
		case over:
			endAll(a)
		}
	}()
	j := a.jobs[0]
	suspect := j.Crashes > 0
	if a.w.chargeLosses(a) || (suspect || a.w.losses.Last(j.ID)) && !a.w.acquireExclusive(a) || suspect && !a.w.isolate(a) {
		return
	}
	a.executed = true
	switch a.h.form {
	case simple:
		over = !a.executeSimple()
	case many:
		a.executeMany()
	case then:
		a.executeThen()
	default:
		a.executeTx()
	}
}

// chargeLosses fails a job that was lost too often in a row, and reports whether it did. The claim
// has just shown that the server can record it.
func (w *Worker) chargeLosses(a *attempt) bool {
	j := a.jobs[0]
	if w.losses.Count(j.ID) < verdict.Bound {
		return false
	}
	w.losses.Charged(j.ID)
	a.executed = true
	w.settle(a.s.ctx, j, txn.Taken())
	return true
}

// acquireExclusive acquires Exclusive for a suspect, or for a job whose next loss is charged. If it
// is not free, the job is put back.
func (w *Worker) acquireExclusive(a *attempt) bool {
	if a.exclusive.TryAcquire() {
		return true
	}
	w.putBack(a.s, a.jobs[0])
	return false
}

// noteLosses counts an attempt that was lost with its connection, and resets the count when a
// handler has ended. lost reports whether an earlier transaction of the attempt was lost.
func (w *Worker) noteLosses(jobs []Job, err error, lost bool) {
	over := err == nil || errors.As(err, new(errOwn)) || errors.Is(err, txn.ErrLost)
	for _, j := range jobs {
		switch {
		case txn.Lost(err), lost && !over:
			w.losses.Lost(j.ID)
		case over:
			w.losses.Over(j.ID)
		}
	}
}

// endAll ends attempts whose jobs have ended or are left to be settled.
func endAll(all ...*attempt) {
	leaving := 0
	for _, a := range all {
		a.s.inFlight.remove(a)
		a.cancel(nil)
		leaving += a.departing()
	}
	solo.Process.Leave(leaving)
	for i, jobs := 0, 0; i < len(all); i++ {
		jobs += len(all[i].jobs)
		if p := all[i].producer; i+1 == len(all) || all[i+1].producer != p {
			if p != nil {
				all[i].loop.Tick()
				p.capacity.give(jobs)
			}
			jobs = 0
		}
		if all[i].over != nil {
			close(all[i].over)
		}
	}
}

// departing leaves the isolator for a suspect. Else it returns how many entrants must leave.
func (a *attempt) departing() int {
	a.exclusive.Release()
	switch {
	case a.leave != nil:
		a.leave()
	case a.left.CompareAndSwap(false, true):
		return len(a.jobs)
	}
	return 0
}

// watch abandons a handler that runs too long past its Timeout, or past the worker's stop. Call
// stop when it has returned.
func (a *attempt) watch(jobs []Job) (stop func()) {
	a.running.Store(&jobs)
	overdue := time.AfterFunc(a.h.policy.Timeout+a.w.abandon, func() { a.leaveBehind(jobs) })
	return func() {
		a.running.Store(nil)
		overdue.Stop()
	}
}

// recalled reports whether the context ended because an operator cancelled the job.
func (a *attempt) recalled() bool { return context.Cause(a) == errRecalled }

// leaveBehind abandons the handler. Its jobs fail, and suspects no longer wait for it. The fence
// rejects its later writes. Its slot and its goroutine stay taken until it returns.
func (a *attempt) leaveBehind(jobs []Job) {
	a.running.Store(nil)
	solo.Process.Leave(a.departing())
	a.w.settleAll(a.s.ctx, jobs, errIgnored)
}

var errIgnored = errors.New("the handler ignored the end of its context and was left behind")

// executeTx runs the transaction, again if it lost a race, and settles the remaining jobs.
func (a *attempt) executeTx() {
	w, jobs := a.w, a.jobs
	select {
	case w.conns <- struct{}{}:
		defer func() { <-w.conns }()
	case <-a.Done():
		w.settleAll(a, jobs, nil)
		return
	}
	try := a.tryOne
	if a.h.form == transactionalMany {
		try = func() error { return a.tryBatch(jobs) }
	}
	err := txn.Restart(a, try)
	lost := txn.Lost(err)
	if errors.Is(err, txn.ErrAlone) && pawl.MayHaveHappened(err) {
		a.unanswered = true
		event := w.event(jobs, "job.finish", err)
		event.Kind = pawl.EventCommitUnknown
		w.emit(a.s.ctx, event)
	}
	switch {
	case len(jobs) > 1 && lostByHandler(err): // by an unknown job: run each alone
		for i := range jobs {
			one := jobs[i : i+1]
			a.conclude(one, txn.Restart(a, func() error { return a.tryBatch(one) }), lost)
		}
		return
	case errors.Is(err, txn.ErrAlone) && !w.losses.Last(jobs[0].ID): // may be the network
		err = txn.Restart(a, try)
	}
	a.conclude(jobs, err, lost)
}

// lostByHandler reports whether a handler lost the transaction, so that it can record no failure.
func lostByHandler(err error) bool {
	return errors.Is(err, txn.ErrAlone) || errors.Is(err, txn.ErrLost) && !errors.Is(err, txn.ErrEnded) && !pawl.Unreachable(err)
}

// conclude settles the jobs that a transaction did not end. lost reports whether an earlier
// transaction of the attempt was lost with its connection.
func (a *attempt) conclude(jobs []Job, err error, lost bool) {
	a.w.noteLosses(jobs, err, lost)
	if lost || txn.Lost(err) {
		a.exclusive.Lost()
	}
	if jobs = a.owned(jobs); err == nil || len(jobs) == 0 {
		return
	}
	w, s := a.w, a.s
	var own errOwn
	event := w.event(jobs, "job.finish", err)
	switch {
	case errors.Is(err, txn.ErrEnded) && pawl.MayHaveHappened(err):
		// The handler's rows may be durable while the job is not finished: never run it again.
		w.settleAll(s.ctx, jobs, pawl.Final(err))
		return
	case a.recalled():
		w.settleAll(s.ctx, jobs, nil) // a cancelled job stays cancelled
		return
	case errors.As(err, &own):
		w.settleAll(s.ctx, jobs, own.error)
		return
	case errors.Is(err, pawl.ErrFenceLost) && a.unanswered:
		return // the COMMIT has ended the jobs
	case errors.Is(err, pawl.ErrFenceLost):
		event.Kind = pawl.EventStaleWriteRefused
	case errors.Is(err, txn.ErrAlone) && pawl.MayHaveHappened(err): // charged if it did not commit
		w.losses.Charged(jobs[0].ID)
		event.Kind = pawl.EventCommitUnknown
		w.emit(s.ctx, event)
		w.settleAll(s.ctx, jobs, err)
		return
	case pawl.MayHaveHappened(err):
		event.Kind = pawl.EventCommitUnknown
	case s.lost(), pawl.Unreachable(err), verdict.IsBusy(pawl.CodeOf(err)):
		// Not charged: a lost session, an outage, or a row lock of another transaction.
		event.Kind = pawl.EventWastedWork
	default:
		w.losses.Charged(jobs[0].ID)
		w.settleAll(s.ctx, jobs, err)
		return
	}
	w.giveBack(s, jobs, event)
}

// giveBack emits why and releases the jobs, which also resolves a COMMIT without a reply.
func (w *Worker) giveBack(s *session, jobs []Job, why pawl.Event) {
	w.emit(s.ctx, why)
	if why.Kind == pawl.EventWastedWork {
		// This job may be the cause of the outage, so wait before it runs again.
		pace.Sleep(s.ctx, w.cfg.Backoff.After(max(1, w.losses.Count(jobs[0].ID))))
	}
	w.settleAll(s.ctx, jobs, nil)
}

// event returns an event about jobs with the same outcome.
func (w *Worker) event(jobs []Job, op string, err error) pawl.Event {
	e := pawl.Event{Op: op, Scope: jobs[0].Queue, JobID: jobs[0].ID, JobKind: jobs[0].Kind, Attempt: jobs[0].Attempt, Err: err}
	if len(jobs) > 1 {
		e.Count = len(jobs)
	} else {
		e.Fence = jobs[0].Fence
	}
	return e
}

// emitFailed emits the outcome of a failed attempt.
func (w *Worker) emitFailed(ctx context.Context, j Job, failed Failed, cause error) {
	e := w.event([]Job{j}, "job.fail", cause)
	switch {
	case failed.Status == "dead_letter":
		e.Kind = pawl.EventFailed
	case failed.Status == "cancelled":
		e.Kind = pawl.EventCancelled
	case failed.Status == "unknown":
		e.Kind = pawl.EventUnknown
	case directive.Of(cause).Uncharged():
		e.Kind = pawl.EventSnoozed
	default:
		e.Kind = pawl.EventRetryable
	}
	w.emit(ctx, e)
}
