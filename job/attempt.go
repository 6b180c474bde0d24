package job

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/answer"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/progress"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
)

// An attempt takes a claimed job, or a batch of one kind, to an end the database knows of, or leaves it to be settled later. It is
// inside the process's gate, as so many ordinary entrants, since before its jobs were claimed.
type attempt struct {
	context.Context // of its handler
	cancel          context.CancelCauseFunc
	w               *Worker
	producer        *producer      // has a slot taken for each of the jobs; nil: they are had by others
	loop            *progress.Loop // of the producer, in the Run that claimed the jobs
	s               *session
	h               *settings
	jobs            []Job
	executed        bool          // a suspect goes back if the process has another
	over            chan struct{} // closed when it has ended; nil: nobody asks

	leave func()      // of a suspect: ends its stay in the gate
	left  atomic.Bool // an ordinary entrant's stay has ended

	exclusive verdict.Exclusive

	calling bool            // a simple handler has not returned
	limited context.Context // of it
	returns func()          // it has
	began   time.Time
	took    time.Duration // by it
	ended   handlerFinish
	ending  jobEnd

	unanswered bool // a COMMIT of it was not answered: jobs that are not ours any more have ended by it
}

// Value gives the code that the handler calls the attempt's Exclusive.
func (a *attempt) Value(key any) any {
	if key == (verdict.ExclusiveKey{}) {
		return &a.exclusive
	}
	return a.Context.Value(key)
}

// execute goes on until the attempt has ended, or the finishBatcher has it.
func (a *attempt) execute() {
	over := true
	defer func() {
		switch {
		case a.calling:
			go a.continueAfterExit(txn.ErrExited) // the handler took this goroutine with it
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

// chargeLosses fails a job that was lost too often in a row, and reports whether it did: the server
// has just answered the claim, so it can be recorded now.
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

// acquireExclusive keeps suspects and attempts that would be charged for a loss apart. If another of
// them is in hand, the job goes back for a moment.
func (w *Worker) acquireExclusive(a *attempt) bool {
	if a.exclusive.TryAcquire() {
		return true
	}
	w.putBack(a.s, a.jobs[0])
	return false
}

// noteLosses counts an attempt that was lost with its connection, and forgets its losses when a
// handler came to an end. lost says that an earlier try of the attempt was lost so.
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

// endAll ends attempts whose jobs have ended, or are left to be settled.
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

// departing ends the attempt's stay in the gate, but for the ordinary entrants that it returns.
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

// watch gives up on a handler, when its limit is long over, that ignores the end of its context: see leaveBehind. Call stop when it has
// returned.
func (a *attempt) watch(jobs []Job) (stop func()) {
	overdue := time.AfterFunc(a.h.policy.Timeout+a.w.abandon, func() { a.leaveBehind(jobs) })
	return func() { overdue.Stop() }
}

// recalled reports whether the attempt ended because an operator cancels its job.
func (a *attempt) recalled() bool { return context.Cause(a) == errRecalled }

// leaveBehind does without the handler: its jobs fail like any other, and suspects need not wait for it. What it does later is refused
// by the fence. Its slot stays taken, and its goroutine, until it returns.
func (a *attempt) leaveBehind(jobs []Job) {
	solo.Process.Leave(a.departing())
	a.w.settleAll(a.s.ctx, jobs, errIgnored)
}

var errIgnored = errors.New("the handler ignored the end of its context and was left behind")

// executeTx runs the transaction, again if it lost a race, and settles what it leaves open.
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
	if a.h.form == batch {
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
	case len(jobs) > 1 && lostByHandler(err): // it is not known by which: each goes by itself
		for i := range jobs {
			one := jobs[i : i+1]
			a.conclude(one, txn.Restart(a, func() error { return a.tryBatch(one) }), lost)
		}
		return
	case errors.Is(err, txn.ErrAlone) && !w.losses.Last(jobs[0].ID): // the first time it may have been the network
		err = txn.Restart(a, try)
	}
	a.conclude(jobs, err, lost)
}

// lostByHandler reports whether a handler has lost its transaction, so that nothing could be
// recorded in it.
func lostByHandler(err error) bool {
	return errors.Is(err, txn.ErrAlone) || errors.Is(err, txn.ErrLost) && !errors.Is(err, txn.ErrEnded) && !pawl.Unreachable(err)
}

// conclude settles what a transaction has left open. lost says that an earlier one of the attempt was
// lost with its connection.
func (a *attempt) conclude(jobs []Job, err error, lost bool) {
	a.w.noteLosses(jobs, err, lost)
	if lost || txn.Lost(err) {
		a.exclusive.Lost()
	}
	if err == nil {
		return
	}
	w, s := a.w, a.s
	var own errOwn
	event := w.event(jobs, "job.finish", err)
	switch {
	case errors.Is(err, txn.ErrEnded) && pawl.MayHaveHappened(err):
		w.settleAll(s.ctx, jobs, pawl.Final(err)) // its rows may be durable while the job is not finished: never again
		return
	case a.recalled():
		w.settleAll(s.ctx, jobs, nil) // who recalled it ends it, or else it goes on
		return
	case errors.As(err, &own):
		w.settleAll(s.ctx, jobs, own.error)
		return
	case errors.Is(err, pawl.ErrFenceLost) && a.unanswered:
		return // it has happened
	case errors.Is(err, pawl.ErrFenceLost):
		event.Kind = pawl.EventStaleWriteRefused
	case errors.Is(err, txn.ErrAlone) && pawl.MayHaveHappened(err): // if it has not happened, that is charged
		w.losses.Charged(jobs[0].ID)
		event.Kind = pawl.EventCommitUnknown
		w.emit(s.ctx, event)
		w.settleAll(s.ctx, jobs, err)
		return
	case pawl.MayHaveHappened(err):
		event.Kind = pawl.EventCommitUnknown
	case s.lost(), pawl.Unreachable(err), verdict.IsBusy(pawl.CodeOf(err)):
		event.Kind = pawl.EventWastedWork // the session, the database or whoever has locked the row: uncharged
	default:
		w.losses.Charged(jobs[0].ID)
		w.settleAll(s.ctx, jobs, err)
		return
	}
	w.giveBack(s, jobs, event)
}

// giveBack reports why an attempt came to nothing and releases its jobs, which is the question and the answer in one.
func (w *Worker) giveBack(s *session, jobs []Job, why pawl.Event) {
	w.emit(s.ctx, why)
	if why.Kind == pawl.EventWastedWork {
		pace.Sleep(s.ctx, w.cfg.Backoff.After(max(1, w.losses.Count(jobs[0].ID)))) // what took the database away may be this very job: not again at once
	}
	w.settleAll(s.ctx, jobs, nil)
}

// event describes jobs that share a fate.
func (w *Worker) event(jobs []Job, op string, err error) pawl.Event {
	e := pawl.Event{Op: op, Scope: jobs[0].Queue, JobID: jobs[0].ID, JobKind: jobs[0].Kind, Attempt: jobs[0].Attempt, Err: err}
	if len(jobs) > 1 {
		e.Count = len(jobs)
	} else {
		e.Fence = jobs[0].Fence
	}
	return e
}

// emitFailed reports what the database made of a failure.
func (w *Worker) emitFailed(ctx context.Context, j Job, failed Failed, cause error) {
	e := w.event([]Job{j}, "job.fail", cause)
	switch {
	case failed.Status == "dead_letter":
		e.Kind = pawl.EventFailed
	case failed.Status == "cancelled":
		e.Kind = pawl.EventCancelled
	case failed.Status == "unknown":
		e.Kind = pawl.EventUnknown
	case answer.Of(cause).What == answer.Snooze:
		e.Kind = pawl.EventSnoozed
	default:
		e.Kind = pawl.EventRetryable
	}
	w.emit(ctx, e)
}
