package job

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// attemptSimple calls the handler, then finishes the job. A crash in between costs a second run of the handler.
func (w *Worker) attemptSimple(ctx context.Context, s *session, h Handler, j Job, leave func()) {
	if err := fault.At("job.handle.before"); err != nil {
		w.settle(s.ctx, j, err)
		return
	}
	j.ended = new(ended)
	start := time.Now()
	overdue := w.watch(s.ctx, h, []Job{j}, leave)
	err := txn.Run(traceOf(ctx, j), h.policy.Timeout, func(ctx context.Context) error { return h.call(ctx, nil, []Job{j}) })
	overdue.Stop()
	took := time.Since(start)

	event := w.event([]Job{j}, "job.finish", err)
	switch {
	case recalled(ctx):
		w.settle(s.ctx, j, nil) // who recalled it ends it, or else it goes on
		return
	case err == nil && j.ended.byItself():
		w.confirm(s, j, took)
		return
	case err == nil:
		w.finish(s, j, took)
		return
	case errors.Is(err, pawl.ErrFenceLost):
		event.Kind = pawl.EventStaleWriteRefused
	case pawl.MayHaveHappened(err):
		event.Kind = pawl.EventCommitUnknown
	case s.lost(), pawl.Unreachable(err) && w.databaseAway(s.ctx):
		event.Kind = pawl.EventWastedWork
	default:
		w.settle(s.ctx, j, err)
		return
	}
	w.giveBack(s, []Job{j}, event)
}

// databaseAway asks whether an error that looks like a broken connection is an outage of ours, which is not charged, or one
// of whatever else the handler talks to, which is.
func (w *Worker) databaseAway(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return w.pool.Ping(ctx) != nil
}

// finish ends a simple job whose handler is done. It keeps asking while the database is away, for as long as the lease
// lasts; after that the job goes back and its handler runs again.
func (w *Worker) finish(s *session, j Job, took time.Duration) {
	if err := fault.At("job.finish.before"); err != nil {
		w.settle(s.ctx, j, nil)
		return
	}
	event := w.event([]Job{j}, "job.finish", nil)
	for asked, wait := false, 10*time.Millisecond; ; wait = min(2*wait, time.Second) {
		outcome, err := w.finisher.finish(j)
		switch {
		case outcome == "finished":
			event.Kind, event.Took = pawl.EventFresh, took
		case outcome == "stale" && asked: // an earlier try may have done it, and its reply been lost
			event.Kind = pawl.EventCommitUnknown
		case outcome == "stale":
			event.Kind, event.Err = pawl.EventStaleWriteRefused, &pawl.Error{Op: "job.finish", Code: pawl.CodeFenceLost}
		default:
			asked = asked || err != nil && !txn.Refused(err)
			if err != nil {
				w.emit(s.ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "job.finish", Scope: j.Queue, JobID: j.ID, Err: err})
			}
			if pause(s.ctx, wait) {
				continue
			}
			event.Kind, event.Err = pawl.EventWastedWork, err
		}
		w.emit(s.ctx, event)
		return
	}
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
		event.Kind, event.Took = pawl.EventFresh, took
		w.promoter.after(j.Queue, j.ended.lanes)
	}
	w.emit(s.ctx, event)
}

var errNotCommitted = errors.New("the handler called Finish and returned nil, but its transaction did not commit")

// ended remembers that a handler called Finish in a transaction of its own.
type ended struct {
	mu    sync.Mutex
	done  bool
	lanes contract.Lanes // read when the handler has returned
}

func (e *ended) mark(lanes contract.Lanes) {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.done, e.lanes = true, lanes
	e.mu.Unlock()
}

func (e *ended) byItself() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done
}
