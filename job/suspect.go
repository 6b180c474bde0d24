package job

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/solo"
)

// markPatience bounds one try to record that a suspect is alone, or is so no longer. The door opens
// so much earlier than it must.
const markPatience = 500 * time.Millisecond

// suspectPause is how long a suspect rests that was claimed while the process had another in hand.
const suspectPause = 200 * time.Millisecond

// isolate makes a claimed job the suspect of this process, alone if it can be within solo.AloneWait, else in company. While it is
// alone the database knows it, and counts a death against it alone; it knows otherwise before anything enters beside it. If the
// process has another suspect, or the database cannot be told, the job goes back for a moment, and the attempt is over.
//
// mark: a crash before it counts as a death in company; after it, until the door opens, as a death alone.
func (w *Worker) isolate(a *attempt) (ok bool) {
	s, j := a.s, a.jobs[0]
	suspect := solo.Process.Suspect()
	if suspect == nil {
		w.putBack(s, j)
		return false
	}
	// Other suspects go on, whatever the attempt waits for beside its handler.
	leave := func() {
		suspect.Leave()
		a.exclusive.Release()
	}
	limit := time.AfterFunc(a.h.policy.Timeout+2*w.abandon, leave)
	out := func() {
		limit.Stop()
		leave()
	}
	a.leave = sync.OnceFunc(out)
	if !suspect.Alone(s.ctx) {
		return true
	}
	if err := w.mark(s, j); err != nil {
		w.emit(s.ctx, pawl.Event{Kind: pawl.EventError, Op: "worker.isolate", Scope: j.Queue, JobID: j.ID, Attempt: j.Attempt, Err: err})
		w.putBack(s, j) // the mark may stand: of an attempt that is over, it says nothing
		return false
	}
	reopen := sync.OnceFunc(func() {
		w.unmark(s, j)
		suspect.Open()
	})
	late := time.AfterFunc(solo.AloneFor-2*markPatience, reopen)
	a.leave = sync.OnceFunc(func() {
		late.Stop()
		reopen()
		out()
	})
	return true
}

func (w *Worker) mark(s *session, j Job) error {
	ctx, cancel := context.WithTimeout(s.ctx, markPatience)
	defer cancel()
	outcome, err := contract.WorkerIsolate(ctx, w.pool, s.id, j.ID, j.Fence, true)
	if err == nil && outcome != "alone" {
		err = &pawl.Error{Op: "worker.isolate", Code: pawl.CodeFenceLost, Err: fmt.Errorf("the answer is %q", outcome)}
	}
	if err == nil {
		err = fault.At("worker.isolate.after")
	}
	return err
}

// unmark tells the database that the suspect is in company from now on, before anything is. If that cannot be told in time the door
// opens all the same, and it is told later: until then a death would count as one alone. What is told names this attempt: the mark of
// the next suspect stays. To end the session instead would make the worker's healthy jobs wait for its drain.
func (w *Worker) unmark(s *session, j Job) {
	err := w.clearMark(s, j)
	if err == nil {
		return
	}
	w.emit(s.ctx, pawl.Event{Kind: pawl.EventError, Op: "worker.isolate", Scope: j.Queue, JobID: j.ID, Attempt: j.Attempt, Err: err})
	go func() {
		for err != nil && pace.Sleep(s.ctx, markPatience) {
			err = w.clearMark(s, j)
		}
	}()
}

func (w *Worker) clearMark(s *session, j Job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), markPatience)
	defer cancel()
	_, err := contract.WorkerIsolate(ctx, w.pool, s.id, j.ID, j.Fence, false)
	return err
}

// putBack releases a suspect that may not run now, uncharged, for a moment.
func (w *Worker) putBack(s *session, j Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), statementLimit)
	defer cancel()
	if _, _, err := contract.JobRelease(ctx, w.pool, j.ID, j.Fence, suspectPause); err != nil {
		w.settle(s.ctx, j, nil)
	}
}
