package job

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl"
)

// settleLimit bounds one try to tell the database how an attempt ended.
const settleLimit = 5 * time.Second

// An unsettled attempt ended, but the database could not be told. Its row still counts as processing under our live
// lease, so nobody else would ever take it back: we must keep asking.
type unsettled struct {
	job   Job
	cause error // nil: give it back uncharged
}

// settle ends an attempt whose own transaction is gone, in a transaction of its own, now or at a later heartbeat.
func (w *Worker) settle(ctx context.Context, j Job, cause error) {
	if u := (unsettled{j, cause}); !w.trySettle(ctx, u) {
		w.mu.Lock()
		w.unsettled = append(w.unsettled, u)
		w.mu.Unlock()
	}
}

// settleAgain tries what could not be settled before. It runs behind a heartbeat that was answered.
func (w *Worker) settleAgain(ctx context.Context) {
	for _, u := range w.forgetUnsettled() {
		w.settle(ctx, u.job, u.cause)
	}
}

func (w *Worker) forgetUnsettled() []unsettled {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.unsettled
	w.unsettled = nil
	return all
}

func (w *Worker) trySettle(ctx context.Context, u unsettled) (done bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer cancel()
	var err error
	if u.cause == nil {
		_, err = u.job.Release(ctx, w.pool)
	} else {
		var failed Failed
		failed, err = u.job.Fail(ctx, w.pool, u.cause, w.cfg.Backoff.After(u.job.Attempt), pawl.IsFinal(u.cause))
		if err == nil {
			w.emitFailed(ctx, u.job, failed, u.cause)
		}
	}
	if err == nil || errors.Is(err, pawl.ErrFenceLost) {
		return true
	}
	w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "job.settle", JobID: u.job.ID, Attempt: u.job.Attempt, Err: err})
	return false
}
