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

// registerAgain keeps trying while the database is away. First it gives back what the old session held: an outage is no
// crash, and the sweep would count it as one.
func (w *Worker) registerAgain(ctx context.Context, old *session) (*session, error) {
	w.forgetUnsettled() // leaving settles them
	pause(ctx, w.cfg.Poll)
	for {
		err := w.leave(ctx, old)
		if err == nil {
			var s *session
			if s, err = w.register(ctx); err == nil {
				return s, nil
			}
		}
		if ctx.Err() == nil {
			w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "worker.register", Err: err})
		}
		if !pause(ctx, time.Second) {
			return nil, ctx.Err()
		}
	}
}

// keepAlive renews the lease at a third of its length, and asks twice as often once there was no answer. It gives the
// session up when the database says so, or when the next answer might come after the lease has ended: a beat counts from
// before it was sent, on the monotonic clock, so a frozen process finds itself late.
func (w *Worker) keepAlive(ctx context.Context, s *session) {
	step := w.cfg.Lease / 6
	for wait := 2 * step; pause(ctx, wait); {
		asked := time.Now()
		beat, cancel := context.WithTimeout(ctx, step)
		row, err := contract.WorkerHeartbeat(beat, w.pool, s.id, false)
		cancel()
		switch {
		case err == nil && row.Alive:
			s.beat, wait = asked, 2*step
		case err == nil:
			w.giveUp(ctx, s, &pawl.Error{Op: "worker.heartbeat", Code: pawl.CodeFenceLost})
			return
		case ctx.Err() != nil:
		case time.Since(s.beat)+2*step > w.cfg.Lease:
			w.giveUp(ctx, s, err)
			return
		default:
			w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "worker.heartbeat", Err: err})
			wait = step
		}
	}
}

func (w *Worker) giveUp(ctx context.Context, s *session, why error) {
	w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "worker.lease_lost", Err: why})
	s.lose()
}

// leave ends the session in good order: what it still holds goes back at once, uncharged.
func (w *Worker) leave(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer cancel()
	_, err := contract.WorkerLeave(ctx, w.pool, s.id)
	return err
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
