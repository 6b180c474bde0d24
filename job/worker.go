package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/migrate"
)

// A Handler applies one job. What it writes through tx commits together with the end of the job, or not at all. It must
// not commit or roll back tx, and nothing may leave the process while it runs. An error or a panic means another try;
// wrap it in [pawl.Final] if none can help.
type Handler func(ctx context.Context, tx pgx.Tx, j Job) error

// Config configures a [Worker]. Only Queue and Handler are required.
type Config struct {
	// Queue to work on.
	Queue string
	// Handler for its jobs.
	Handler Handler
	// Kinds this worker knows. It dead-letters crashed jobs of these kinds only, and never decides on others.
	Kinds []string
	// Concurrency is how many jobs run at once; each holds one connection of the pool, and two more must stay free for
	// heartbeats and claims, or long handlers would starve the lease they run under. Default 4, or what the pool leaves.
	Concurrency int
	// Lease is how long this process may stay silent before others take its jobs over. Too short repeats work after a
	// pause, too long delays recovery. Default 30 s, 1 s to 12 h. Renewed at a third.
	Lease time.Duration
	// Timeout cancels a handler's context. A transaction open for long holds back vacuum for the whole database.
	// Default 30 s.
	Timeout time.Duration
	// Poll is the pause after an empty claim. Shorter starts work sooner and asks the idle database more often.
	// Default 500 ms.
	Poll time.Duration
	// Backoff between the tries of one job.
	Backoff Backoff
	// MaxCrashes is how many process deaths a job may be present at before it becomes a dead letter. After the first it
	// runs alone, so the later ones are its own. Default 4.
	MaxCrashes int
	// Drain is how long a stopping worker lets its handlers finish before their contexts are cancelled. Default 25 s,
	// inside the 30 s Kubernetes and ECS give.
	Drain time.Duration
	// Name is shown to operators. Default host name and process id.
	Name string
	// Hooks receive what happens.
	Hooks pawl.Hooks
}

// abandonAfter is how long a cancelled handler may take to notice. One that ignores its context is left behind, and the
// server ends its transaction.
const abandonAfter = 5 * time.Second

// serviceConns is how many connections of the pool stay free of handlers.
const serviceConns = 2

// A Worker claims jobs of one queue and runs their handlers.
type Worker struct {
	pool    *pgxpool.Pool
	cfg     Config
	abandon time.Duration

	slots     chan struct{} // one token a running job
	mu        sync.Mutex
	unsettled []unsettled
}

// NewWorker checks the configuration and fills in the defaults.
func NewWorker(pool *pgxpool.Pool, cfg Config) (*Worker, error) {
	if err := cfg.complete(int(pool.Config().MaxConns)); err != nil {
		return nil, &pawl.Error{Op: "job.worker", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	return &Worker{pool: pool, cfg: cfg, abandon: abandonAfter, slots: make(chan struct{}, cfg.Concurrency)}, nil
}

func (c *Config) complete(conns int) error {
	if c.Queue == "" || c.Handler == nil {
		return errors.New("the fields Queue and Handler are required")
	}
	defaulted(&c.Concurrency, max(1, min(4, conns-serviceConns)))
	defaulted(&c.Lease, 30*time.Second)
	defaulted(&c.Timeout, 30*time.Second)
	defaulted(&c.Poll, 500*time.Millisecond)
	defaulted(&c.Drain, 25*time.Second)
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%.200s/%d", host, os.Getpid())
	}
	if c.Lease < time.Second || c.Lease > 12*time.Hour {
		return fmt.Errorf("the Lease must lie between 1s and 12h, it is %v", c.Lease)
	}
	if need := c.Concurrency + serviceConns; need > conns {
		return fmt.Errorf("the pool has %d connections, but Concurrency %d + %d for housekeeping need %d: "+
			"set pool_max_conns=%d in the database URL or lower Concurrency", conns, c.Concurrency, serviceConns, need, need)
	}
	return nil
}

func defaulted[T int | time.Duration](option *T, value T) {
	if *option <= 0 {
		*option = value
	}
}

// Run works until ctx ends, then stops claiming, lets the running handlers finish within Drain, gives everything else
// back uncharged, and returns nil. It returns an error only if it cannot start: the database is unreachable or its
// schema does not fit.
func (w *Worker) Run(ctx context.Context) error {
	if err := migrate.Check(ctx, w.pool); err != nil {
		return err
	}
	s, err := w.register(ctx)
	if err != nil {
		return err
	}
	for {
		w.work(ctx, s)
		w.drain(ctx, s)
		if ctx.Err() != nil {
			if err := w.leave(ctx, s); err != nil {
				w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "worker.leave", Err: err})
			}
			return nil
		}
		if s, err = w.registerAgain(ctx, s); err != nil {
			return nil // ctx ended while the database was away; nothing is held
		}
	}
}

// work claims and starts jobs until ctx ends, or the session loses its lease, or does not know any more what it holds.
func (w *Worker) work(ctx context.Context, s *session) {
	var background sync.WaitGroup
	defer background.Wait()
	until, stop := s.until(ctx)
	defer stop()
	background.Go(func() { w.keepAlive(until, s) })
	background.Go(func() { w.keepHouse(until) })
	background.Go(func() { w.keepSettling(until) })
	for {
		free, ok := w.freeSlots(until)
		if !ok {
			return
		}
		jobs, err := Claim(until, w.pool, w.cfg.Queue, s.id, free)
		if err != nil && !w.claimFailed(until, s, err) {
			return
		}
		for _, j := range jobs {
			w.slots <- struct{}{} // counted free above; only this loop fills
			go func() {
				defer func() { <-w.slots }()
				w.attempt(s, j)
			}()
		}
		if len(jobs) == 0 && !pause(until, w.cfg.Poll) {
			return
		}
	}
}

// claimFailed reports whether the session may go on. If the reply is lost, jobs may be ours without our knowing their
// names: under a lease that we renew nobody would ever run them. So the session ends in good order, which gives back all
// it holds, and a new one begins.
func (w *Worker) claimFailed(ctx context.Context, s *session, err error) bool {
	if errors.Is(err, pawl.ErrFenceLost) {
		w.giveUp(ctx, s, err)
		return false
	}
	if ctx.Err() == nil {
		w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "job.claim", Err: err})
	}
	return txn.Refused(err)
}

// freeSlots waits for at least one free slot and returns how many there are, at most 500.
func (w *Worker) freeSlots(ctx context.Context) (int, bool) {
	select {
	case w.slots <- struct{}{}:
		<-w.slots
	case <-ctx.Done():
		return 0, false
	}
	if ctx.Err() != nil {
		return 0, false
	}
	return min(cap(w.slots)-len(w.slots), 500), true
}

// drain lets the running handlers finish within Drain; then it ends their contexts and, if the worker is stopping, waits
// a little longer. The lease is renewed to the last, so that nobody counts as crashed what is given back. After a lost
// lease it only ends the contexts: their work is lost anyway.
func (w *Worker) drain(ctx context.Context, s *session) {
	detached, stop := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	if !s.lost() {
		background.Go(func() { w.keepAlive(detached, s) })
		w.idle(s.ctx, w.cfg.Drain)
	}
	s.lose()
	if ctx.Err() != nil {
		w.idle(detached, w.abandon)
	}
}

// idle waits until no job runs, at most for limit. No job can start meanwhile.
func (w *Worker) idle(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for range cap(w.slots) {
		select {
		case w.slots <- struct{}{}:
			defer func() { <-w.slots }()
		case <-ctx.Done():
			return
		}
	}
}

func (w *Worker) emit(ctx context.Context, e pawl.Event) {
	e.Scope = w.cfg.Queue
	w.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}

// pause waits for d and reports whether ctx is still open.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
