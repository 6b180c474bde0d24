package job

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
)

// requeuePause is the longest wait that the sweep gives a job after its first crash.
const requeuePause = 100 * time.Millisecond

// keepHouse requeues the jobs of dead workers, several times in a lease. Every worker does it, so
// there is no leader. While the session is present, the presence connection does it instead.
// keepHouse also maintains lanes, the archive and enqueue keys.
func (w *Worker) keepHouse(ctx context.Context, s *session) {
	lanes, archive, keys := w.newLaneKeeper(), w.newArchiveKeeper(), w.newKeyKeeper()
	for pace.Sleep(ctx, w.sweepPause()) {
		if !s.present.Load() && w.mayJudge(s) {
			_ = w.sweep(ctx, w.pool)
		}
		lanes.keep(ctx)
		archive.keep(ctx)
		keys.keep(ctx)
	}
}

// grace is how long a new session does not sweep. After an outage all workers were silent. Those
// that come back release their jobs uncharged.
const grace = 5 * time.Second

// mayJudge reports whether the session may sweep: it is current, has its lease, and is older than
// grace. After an outage, a worker releases the jobs of its lost session itself.
func (w *Worker) mayJudge(s *session) bool {
	return w.session.Load() == s && !s.lost() && time.Since(s.began) >= min(grace, w.cfg.Lease)
}

// sweepPause is random, so that workers do not sweep at the same time.
func (w *Worker) sweepPause() time.Duration {
	every := min(max(w.cfg.Lease/6, 100*time.Millisecond), 500*time.Millisecond)
	return every*3/4 + rand.N(every/2)
}

func (w *Worker) sweep(ctx context.Context, db DB) error {
	limited, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	swept, err := contract.JobSweep(limited, db, w.kinds, w.cfg.MaxCrashes)
	if err != nil {
		if ctx.Err() == nil {
			w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "job.sweep", Err: err})
		}
		return err
	}
	emit := func(kind pawl.EventKind, count int) { // no scope: the jobs may be of any queue
		w.emitAsIs(context.WithoutCancel(ctx), pawl.Event{Kind: kind, Op: "job.sweep", Count: count})
	}
	if swept.Requeued > 0 {
		emit(pawl.EventStaleTakeover, swept.Requeued)
		time.AfterFunc(requeuePause, w.Kick)
	}
	if swept.DeadLettered > 0 {
		emit(pawl.EventFailed, swept.DeadLettered)
	}
	w.promoter.after("", swept.Lanes)
	return nil
}
