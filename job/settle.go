package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
)

// statementLimit bounds each statement of the worker itself.
const statementLimit = 5 * time.Second

// An unsettled attempt has ended, but its outcome could not be recorded. The job still counts as
// processing under our live lease, so no sweep takes it back. The worker must retry.
type unsettled struct {
	job   Job
	cause error // nil: release it uncharged
}

// settle records an attempt's outcome in its own transaction. If that fails, keepSettling retries.
func (w *Worker) settle(ctx context.Context, j Job, cause error) {
	w.trySettle(context.WithoutCancel(ctx), unsettled{j, cause})
}

func (w *Worker) settleAll(ctx context.Context, jobs []Job, cause error) {
	for _, j := range jobs {
		w.settle(ctx, j, cause)
	}
}

// keepSettling retries apart from the heartbeat, because a locked row makes each retry wait.
func (w *Worker) keepSettling(ctx context.Context) {
	for pace.Sleep(ctx, w.cfg.Lease/3) {
		for _, u := range w.forgetUnsettled() {
			if ctx.Err() != nil {
				return // leave releases the rest
			}
			w.trySettle(ctx, u)
		}
	}
}

// isAbsent reports whether the fence was lost because the job has finished or was discarded.
func isAbsent(refused error) bool {
	var pg *pgconn.PgError
	return errors.As(refused, &pg) && pg.Detail == "absent"
}

// backoff returns the Backoff of a kind's handler.
func (w *Worker) backoff(kind string) Backoff {
	if h := w.handlers[kind]; h != nil {
		return h.policy.Backoff
	}
	return w.cfg.Backoff
}

func (w *Worker) forgetUnsettled() []unsettled {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.unsettled
	w.unsettled = nil
	return all
}

func (w *Worker) trySettle(ctx context.Context, u unsettled) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var err error
	if u.cause == nil {
		_, err = u.job.Release(ctx, w.pool)
	} else {
		var failed Failed
		var lanes contract.Lanes
		failed, lanes, err = u.job.fail(ctx, w.pool, u.cause, w.backoff(u.job.Kind))
		if err == nil {
			w.emitFailed(ctx, u.job, failed, u.cause)
			w.promoter.after(u.job.Queue, lanes)
		}
	}
	switch {
	case err == nil:
		return
	case errors.Is(err, pawl.ErrFenceLost):
		e := w.event([]Job{u.job}, "job.finish", u.cause)
		e.Kind = pawl.EventStaleWriteRefused
		switch {
		case errors.Is(u.cause, pawl.ErrFenceLost): // the handler lost this job's fence
			w.emit(ctx, e)
		case isAbsent(err) && u.cause != errIgnored && !errors.Is(u.cause, txn.ErrAlone):
			// After those two causes, the attempt's own COMMIT may have ended the job.
			e.Err = fmt.Errorf("the handler failed, and the job has ended: by a newer attempt, or because the handler ended the transaction that it was lent: %w", u.cause)
			w.emit(ctx, e)
		}
		return
	}
	w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "job.settle", Scope: u.job.Queue, JobID: u.job.ID, Attempt: u.job.Attempt, Err: err})
	w.mu.Lock()
	w.unsettled = append(w.unsettled, u)
	w.mu.Unlock()
}
