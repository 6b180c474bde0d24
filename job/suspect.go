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

// markPatience bounds one attempt to set or clear a suspect's mark in the database. The timer that
// reopens the isolator is shorter by twice this time.
const markPatience = 500 * time.Millisecond

// suspectPause is how long a job waits that was put back because the process runs another suspect.
const suspectPause = 200 * time.Millisecond

// isolate makes a claimed job the suspect of this process. If other work leaves within
// solo.AloneWait, the suspect runs alone, else beside other work. While it is alone it is marked in
// the database, which then counts a death as a death alone. The mark is cleared before other work
// enters. If the process has another suspect, or the mark cannot be set, the job is put back and
// the attempt is over.
//
// mark: a crash before it counts as a death with other jobs. A crash after it, until the isolator
// opens, counts as a death alone.
func (w *Worker) isolate(a *attempt) (ok bool) {
	s, j := a.s, a.jobs[0]
	suspect := solo.Process.Suspect()
	if suspect == nil {
		w.putBack(s, j)
		return false
	}
	// The limit lets other suspects run even if the attempt waits for something beside its handler.
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
		w.putBack(s, j) // the mark may stay set: it is for an attempt that is over
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
		err = &pawl.Error{Op: "worker.isolate", Code: pawl.CodeFenceLost, Err: fmt.Errorf("worker_isolate returned %q", outcome)}
	}
	if err == nil {
		err = fault.At("worker.isolate.after")
	}
	return err
}

// unmark clears the suspect's mark before other work enters. If that fails within markPatience, the
// isolator opens anyway and unmark retries in the background. Until it succeeds, a death counts as
// a death alone. The call names this attempt, so it does not clear the mark of the next suspect.
// Ending the session instead would make the worker's healthy jobs wait for its drain.
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

// putBack releases a job that may not run now, uncharged, for suspectPause.
func (w *Worker) putBack(s *session, j Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), statementLimit)
	defer cancel()
	if _, _, err := contract.JobRelease(ctx, w.pool, j.ID, j.Fence, suspectPause); err != nil {
		w.settle(s.ctx, j, nil)
	}
}
