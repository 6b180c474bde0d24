package job

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/progress"
	"github.com/pawl-go/pawl/internal/rollup"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/migrate"
)

// abandonAfter is how long a handler may run after its context has ended, before it is abandoned.
const abandonAfter = 5 * time.Second

// A Worker claims the jobs of some queues and runs their handlers.
type Worker struct {
	pool          *pgxpool.Pool
	cfg           Config
	handlers      map[string]*settings // by kind
	kinds         []string
	producers     []*producer
	conns         chan struct{} // one token for each handler with a transaction
	finishBatcher *finishBatcher
	losses        verdict.Losses[int64] // by job id
	promoter      *lanePromoter
	announcer     announcer
	session       atomic.Pointer[session] // the current one, while Run works
	abandon       time.Duration
	ready         chan struct{} // closed when the first session begins

	hooks   *sync.WaitGroup // hooks of ended jobs, of the current Run
	counted *rollup.Recorder

	progress  *progress.Tracker // of the current Run
	begun     sync.Once
	mu        sync.Mutex
	unsettled []unsettled
}

// NewWorker checks the configuration against the pool and fills in the defaults. It makes no query.
//
// Errors: [pawl.ErrArgumentInvalid], with the field and what to set instead.
func NewWorker(pool *pgxpool.Pool, cfg Config) (*Worker, error) {
	if pool == nil {
		return nil, &pawl.Error{Op: "job.worker", Code: pawl.CodeArgumentInvalid, Err: errors.New("the pool is missing")}
	}
	limit, err := conns.Limit(cfg.MaxConns, int(pool.Config().MaxConns))
	var handlers []settings
	if err == nil {
		handlers, err = cfg.complete(limit)
	}
	if err != nil {
		return nil, &pawl.Error{Op: "job.worker", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	w := &Worker{pool: pool, cfg: cfg, handlers: map[string]*settings{}, abandon: abandonAfter, ready: make(chan struct{}),
		conns: make(chan struct{}, max(1, limit-conns.Housekeeping))}
	w.counted = rollup.New(pool, rollup.Queue)
	w.promoter = newLanePromoter(pool, w.kickQueue)
	w.finishBatcher = newFinishBatcher(pool, w.promoter)
	for _, h := range handlers {
		timed := h.timed()
		w.handlers[h.kind] = &timed
		w.kinds = append(w.kinds, h.kind)
	}
	for _, q := range cfg.Queues {
		w.producers = append(w.producers, newProducer(w, q))
	}
	return w, nil
}

// Run works until ctx ends. Then it stops claiming, lets running handlers finish within
// ShutdownTimeout, ends their contexts, releases all other jobs uncharged, and returns nil. A
// handler that has not returned 5 s after its context ended is abandoned, which counts as a crash
// of its job. Run returns an error only if it cannot start, because the database is unreachable or
// its schema does not fit
// ([pawl.ErrSchemaMismatch]).
func (w *Worker) Run(ctx context.Context) error {
	if err := migrate.Check(ctx, w.pool); err != nil {
		return unlessOver(ctx, err)
	}
	s, err := w.register(ctx)
	if err != nil {
		return unlessOver(ctx, err)
	}
	w.watchProgress(ctx)
	w.hooks = new(sync.WaitGroup)
	defer w.addCounts(ctx)
	defer w.awaitHooks()
	w.begun.Do(func() { close(w.ready) })
	defer w.promoter.wait()
	defer func() { s.depart() }()
	for {
		w.work(ctx, s)
		w.drain(ctx, s)
		if ctx.Err() != nil {
			if err := w.leave(ctx, s, w.abandoned(s)); err != nil {
				w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "worker.leave", Err: err})
			}
			return nil
		}
		again, err := w.registerAgain(ctx, s)
		if err != nil {
			return nil // ctx ended during an outage; no job is held
		}
		s = again
	}
}

// awaitHooks waits until the hooks of all ended jobs have returned, at most w.abandon.
func (w *Worker) awaitHooks() {
	all := w.hooks
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(w.abandon):
	}
}

// unlessOver returns nil if ctx has ended: stopping a worker before it started is not an error.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// watchProgress registers each queue's loop with the service's liveness check.
func (w *Worker) watchProgress(ctx context.Context) {
	w.progress = progress.From(ctx)
	var longest time.Duration
	for _, h := range w.handlers {
		longest = max(longest, h.policy.Timeout)
	}
	for _, p := range w.producers {
		// Twice, because a transaction that lost a race runs again.
		p.loop = w.progress.Loop("queue "+p.queue.Name, w.cfg.Poll+2*(longest+w.abandon), p.due)
	}
}

// Ready is closed when Run has registered the worker. From then on, others notice its death.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// work claims and starts jobs until ctx ends, the lease is lost, or a claim had no reply.
func (w *Worker) work(ctx context.Context, s *session) {
	until, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.ctx, stop)()
	defer context.AfterFunc(s.doubtful, stop)()
	w.session.Store(s)
	defer w.session.Store(nil)
	w.progress.Register(w, true)
	defer w.progress.Register(w, false)

	var all sync.WaitGroup
	all.Go(func() { w.keepAlive(until, s) })
	all.Go(func() { w.keepHouse(until, s) })
	all.Go(func() { w.keepCounts(until) })
	all.Go(func() { w.keepSettling(until) })
	w.awaitPresence(until, s)
	for _, p := range w.producers {
		all.Go(func() { p.work(until, s) })
	}
	all.Wait()
}

// drain lets running handlers finish within ShutdownTimeout. Then it cancels their contexts and, if
// the worker stops, waits up to w.abandon. The lease is renewed until the end, so that released
// jobs do not count as crashed. If the lease is lost, it only cancels the contexts.
func (w *Worker) drain(ctx context.Context, s *session) {
	detached, stop := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	if !s.lost() {
		background.Go(func() { w.keepAlive(detached, s) })
		w.idle(s.ctx, w.cfg.ShutdownTimeout)
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
	for _, p := range w.producers {
		defer p.capacity.give(p.capacity.takeAll(ctx))
	}
}

// Kick makes the worker claim now instead of after its next poll. Call it after your transaction
// with enqueued jobs has committed. It never blocks.
func (w *Worker) Kick() { w.kickQueue("") }

// kickQueue kicks one queue, or all if the name is empty.
func (w *Worker) kickQueue(name string) {
	for _, p := range w.producers {
		if name == "" || name == p.queue.Name {
			p.kickNow()
		}
	}
}

// Processed is the result of [Worker.Process].
type Processed string

// The results of [Worker.Process].
const (
	// Done: the job was claimed and its attempt has ended. The database has the outcome.
	Done    Processed = "claimed"
	NotDue  Processed = "not_due" // its time has not come, for instance between two attempts
	Busy    Processed = "busy"    // another attempt holds it
	Waiting Processed = "waiting" // it waits behind another job of its lane
	Ended   Processed = "ended"   // cancelled, or a dead letter
	Paused  Processed = "paused"  // its queue is paused, or drains and the job was not tried before
	Absent  Processed = "absent"  // finished, discarded, or never there
)

// Process claims one job by its id, runs its handler and returns when the attempt has ended. Use it
// for messages such as "process job 17". If it returns no error, the database has the job's state,
// and you can acknowledge the message. The worker must serve the job's queue and kind, and Run must
// be running.
//
// It waits for a slot of the queue until ctx ends.
//
// Errors: [pawl.Retryable] ones if the worker is not running, or if ctx ends before a slot is free.
// Also if the job is a suspect and the process already runs one. [pawl.ErrArgumentInvalid] for a
// queue or kind that the worker does not serve; the job then stays pending. Errors of the database.
func (w *Worker) Process(ctx context.Context, id int64) (Processed, error) {
	s := w.session.Load()
	if s == nil || s.lost() {
		return "", &pawl.Error{Op: "job.process", Code: pawl.CodeInProgress, Err: fmt.Errorf("the worker %q is not running", w.cfg.Name),
			Hint: "start Run, or try again in a second"}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	p, readOn, err := w.producerOf(ctx, id)
	switch {
	case err != nil:
		return "", err
	case p == nil:
		// The job's end may not be replicated yet.
		return Absent, txn.Replicated(ctx, w.pool, readOn)
	}
	if p.capacity.take(ctx, 1) == 0 {
		return "", &pawl.Error{Op: "job.process", Code: pawl.CodeInProgress, Err: errors.New("no slot of its queue became free"), Hint: "try again"}
	}
	if err := solo.Process.Enter(ctx, 1); err != nil {
		p.capacity.give(1)
		return "", &pawl.Error{Op: "job.process", Code: pawl.CodeInProgress, Err: err, Hint: "try again"}
	}
	row, err := contract.JobClaimID(ctx, w.pool, id, s.id)
	if err != nil || row.Outcome != "claimed" {
		solo.Process.Leave(1)
		p.capacity.give(1)
		if err != nil {
			w.claimFailed(ctx, s, err)
		} else {
			err = replicated(ctx, w.pool, row.ReadOn)
		}
		return Processed(row.Outcome), err
	}
	return w.processClaimed(ctx, s, p, claimed(row.Job))
}

// producerOf returns the producer of a job's queue, because the slot is taken before the claim. It
// returns nil if the job does not exist, and readOn for txn.Replicated.
func (w *Worker) producerOf(ctx context.Context, id int64) (p *producer, readOn string, err error) {
	queue, readOn, err := catalog.JobQueue(ctx, w.pool, id)
	if err != nil || queue == "" {
		return nil, readOn, err
	}
	for _, p := range w.producers {
		if p.queue.Name == queue {
			return p, readOn, nil
		}
	}
	return nil, "", &pawl.Error{Op: "job.process", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("job %d is in queue %q, which this worker does not serve", id, queue)}
}

// processClaimed runs a job that was claimed by its id, in a slot of its queue.
func (w *Worker) processClaimed(ctx context.Context, s *session, p *producer, j Job) (Processed, error) {
	if w.handlers[j.Kind] == nil {
		w.settle(ctx, j, nil)
		solo.Process.Leave(1)
		p.capacity.give(1)
		return "", &pawl.Error{Op: "job.process", Code: pawl.CodeArgumentInvalid,
			Err: fmt.Errorf("job %d is of kind %q in queue %q, which this worker does not serve", j.ID, j.Kind, j.Queue)}
	}
	a := p.attempts(s, []Job{j})[0]
	a.over = make(chan struct{})
	p.launch(s, a)
	<-a.over
	if !a.executed {
		return "", &pawl.Error{Op: "job.process", Code: pawl.CodeInProgress, Err: fmt.Errorf("job %d may have killed a process or the server, and this process runs another such job", j.ID),
			Hint: "a process runs one of them at a time; try again"}
	}
	return Done, nil
}

// claimFailed reports whether the session may continue. If the reply was lost, the session may hold
// jobs whose ids it does not know. While it renews their lease, no worker would run them. So the
// session leaves, which releases all its jobs, and a new one begins.
func (w *Worker) claimFailed(ctx context.Context, s *session, err error) bool {
	switch {
	case pawl.CodeOf(err) == pawl.CodeFenceLost:
		w.giveUp(ctx, s, err)
		return false
	case ctx.Err() == nil:
		w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "job.claim", Err: err})
	}
	if !txn.Refused(err) {
		s.doubt()
		return false
	}
	return true
}

func (w *Worker) emit(ctx context.Context, e pawl.Event) {
	if e.Scope == "" {
		e.Scope = w.cfg.Queues[0].Name
	}
	w.emitAsIs(context.WithoutCancel(ctx), e)
}
