package job

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A session is one incarnation of the worker in the database: a worker row, and the lease of everything claimed under
// it. When the lease is lost the handlers' context ends and a new session begins.
type session struct {
	id   int64
	ctx  context.Context // of the handlers
	lose context.CancelFunc
	beat time.Time // last renewal, monotonic; only keepAlive touches it
}

func (s *session) lost() bool { return s.ctx.Err() != nil }

// until returns a context that ends with ctx or with the session.
func (s *session) until(ctx context.Context) (context.Context, context.CancelFunc) {
	both, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return both, func() { stop(); cancel() }
}

func (w *Worker) register(ctx context.Context) (*session, error) {
	asked := time.Now()
	id, err := contract.WorkerRegister(ctx, w.pool, w.cfg.Name, w.cfg.Lease)
	if err != nil {
		return nil, err
	}
	handlers, lose := context.WithCancel(context.WithoutCancel(ctx))
	return &session{id: id, ctx: handlers, lose: lose, beat: asked}, nil
}

// registerAgain keeps trying while the database is away.
func (w *Worker) registerAgain(ctx context.Context) (*session, error) {
	w.forgetUnsettled() // the old session's claims are the sweep's now
	for {
		s, err := w.register(ctx)
		if err == nil {
			return s, nil
		}
		w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "worker.register", Err: err})
		if !pause(ctx, time.Second) {
			return nil, ctx.Err()
		}
	}
}

// keepAlive renews the lease at a third of its length. It gives the session up when the database says so, or when no
// renewal was answered for so long that the database may be about to: a beat counts from before it was sent, on the
// monotonic clock, so a frozen process finds itself late.
func (w *Worker) keepAlive(ctx context.Context, s *session) {
	every := w.cfg.Lease / 3
	for pause(ctx, every) && !s.lost() {
		asked := time.Now()
		beat, cancel := context.WithTimeout(ctx, every)
		alive, err := contract.WorkerHeartbeat(beat, w.pool, s.id)
		cancel()
		switch {
		case err == nil && alive:
			s.beat = asked
			w.settleAgain(ctx)
		case err == nil:
			w.giveUp(ctx, s, &pawl.Error{Op: "worker.heartbeat", Code: pawl.CodeFenceLost})
		case ctx.Err() != nil:
		case time.Since(s.beat) > w.cfg.Lease-every/2:
			w.giveUp(ctx, s, err)
		default:
			w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "worker.heartbeat", Err: err})
		}
	}
}

func (w *Worker) giveUp(ctx context.Context, s *session, why error) {
	w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "worker.lease_lost", Err: why})
	s.lose()
}

// leave ends the session in good order.
func (w *Worker) leave(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := contract.WorkerLeave(ctx, w.pool, s.id); err != nil {
		w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "worker.leave", Err: err})
	}
}

// keepHouse takes back the jobs of dead workers, several times a lease. Every worker does it: there is no leader to
// lose.
func (w *Worker) keepHouse(ctx context.Context) {
	every := min(max(w.cfg.Lease/6, 100*time.Millisecond), 5*time.Second)
	for pause(ctx, every) {
		swept, err := contract.JobSweep(ctx, w.pool, w.cfg.Kinds, w.cfg.MaxCrashes)
		if err != nil {
			if ctx.Err() == nil {
				w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "job.sweep", Err: err})
			}
			continue
		}
		if swept.Requeued > 0 {
			w.emit(ctx, pawl.Event{Kind: pawl.EventStaleTakeover, Op: "job.sweep", Count: swept.Requeued})
		}
		if swept.DeadLettered > 0 {
			w.emit(ctx, pawl.Event{Kind: pawl.EventFinal, Op: "job.sweep", Count: swept.DeadLettered})
		}
	}
}
