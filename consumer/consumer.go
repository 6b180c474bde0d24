package consumer

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/progress"
	"github.com/pawl-go/pawl/internal/rollup"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/migrate"
)

// A Consumer consumes one source.
type Consumer struct {
	pool    *pgxpool.Pool
	cfg     Config
	handler settings
	info    pawl.SourceInfo // as it was at the start
	follows bool            // Config.Retention is unset and the source declares a horizon
	queue   string          // of stored deliveries
	retries *job.Worker
	counted *rollup.Recorder

	acks         chan pawl.Receipt
	marks        chan mark // for the filter
	unreplicated chan unreplicated
	inFlight     inFlight
	running      running
	groups       groups
	source       sourceGuard
	bound        bound
	flood        flood
	memory       atomic.Pointer[memory] // nil: no report has succeeded
	deaths       deaths
	losses       verdict.Losses[string] // by inbox key
	loop         *progress.Loop         // receiving and handling; nil if no liveness check watches
	away         atomic.Bool            // our statements failed; no probe succeeded since
	setbacks     atomic.Int32           // probes that succeeded since a delivery was decided
}

// storedKind is the kind of the job that owns a stored delivery.
const storedKind = "delivery"

// maxConsumer leaves room for the queue name made from it.
const maxConsumer = 200

// New checks the configuration against the pool and fills in the defaults. It asks the source for
// its [pawl.SourceInfo], and makes no query.
//
// Errors: [pawl.ErrArgumentInvalid], with the field and what to set instead.
func New(pool *pgxpool.Pool, cfg Config) (*Consumer, error) {
	if pool == nil {
		return nil, &pawl.Error{Op: "consumer.new", Code: pawl.CodeArgumentInvalid, Err: errors.New("the pool is missing")}
	}
	unsaid := cfg.Retention.Window() == 0 && !cfg.Retention.Forever
	limit, err := conns.Limit(cfg.MaxConns, int(pool.Config().MaxConns))
	if err != nil {
		return nil, &pawl.Error{Op: "consumer.new", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	handler, info, err := cfg.complete(limit)
	if err != nil {
		return nil, &pawl.Error{Op: "consumer.new", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	c := &Consumer{pool: pool, cfg: cfg, handler: handler, info: info, follows: unsaid && info.RedeliveryHorizon > 0, queue: "inbox/" + cfg.Name,
		counted: rollup.New(pool, rollup.Consumer), acks: make(chan pawl.Receipt, cfg.Concurrency), unreplicated: make(chan unreplicated, maxUnreplicated), marks: make(chan mark, maxMarks),
		groups: groups{most: maxParked(info.ReceiveBatch)}}
	c.flood.most, c.flood.resumed = cfg.MaxDead, make(chan struct{}, 1)
	c.bound.most = cfg.MaxStored
	c.bound.stored.Store(1) // forces a first count: earlier runs may have stored deliveries
	c.retries, err = job.NewWorker(pool, c.retrying())
	return c, err
}

func (c *Consumer) retrying() job.Config {
	cfg, h := c.cfg, c.handler
	working := cfg.RetryConcurrency
	if h.mode == StoreFirst {
		working = cfg.Concurrency
	}
	return job.Config{
		Queues:   []job.Queue{{Name: c.queue, Concurrency: working}},
		Handlers: []job.Handler{c.retryHandler()},
		Lease:    h.Lease, MaxCrashes: h.MaxCrashes, Timeout: h.Timeout, Backoff: h.Backoff,
		Presence: cfg.Presence, ShutdownTimeout: cfg.ShutdownTimeout, Hooks: c.noting(), MaxConns: cfg.MaxConns,
	}
}

func (c *Consumer) retryHandler() job.Handler {
	switch h := c.handler; {
	case h.form == leased, h.form == triggered:
		return job.Handle(storedKind, c.workLeased)
	case h.gate != nil:
		return c.retryGate()
	case h.sql:
		return job.HandleSQL(storedKind, c.retrySQL)
	}
	return job.HandleTx(storedKind, c.retry)
}

// retryGate returns a batch handler with a batch size of 1. Unlike HandleTx, it keeps the job's row
// until the handler has returned. A delivery that must wait at its gate is copied from that row.
func (c *Consumer) retryGate() job.Handler {
	h := job.HandleManyTx(storedKind, func(ctx context.Context, tx pgx.Tx, ts []job.Task[[]byte]) error { return c.retry(ctx, tx, ts[0]) })
	if c.handler.sql {
		h = job.HandleManySQL(storedKind, func(ctx context.Context, tx *sql.Tx, ts []job.Task[[]byte]) error { return c.retrySQL(ctx, tx, ts[0]) })
	}
	return h.With(job.ManyPolicy{BatchSize: 1})
}

// Run consumes until ctx ends, then drains and returns nil. It returns an error only if it cannot
// start, because the database is unreachable or its schema does not fit ([pawl.ErrSchemaMismatch]).
// A source that fails is retried with back-off and reported as an event.
//
// A [pawl.Finisher] is finished when Run returns, and Run refuses to run on it again. After an
// error that is [pawl.Retryable] the source is not finished: call Run again.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.unfinished(); err != nil {
		return err
	}
	if err := migrate.Check(ctx, c.pool); err != nil {
		if ctx.Err() == nil && pawl.Retryable(err) {
			return err // the source is not finished: Run can be called again
		}
		c.finish(ctx)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer c.finish(ctx)
	c.watchProgress(ctx)
	work := make(chan pawl.Delivery)
	handled, stopped := make(chan struct{}), make(chan struct{})
	var retries, handling, confirming, acking sync.WaitGroup
	retries.Go(func() { c.retryStored(ctx) })
	retries.Go(func() { c.keepInbox(ctx) })
	retries.Go(func() { c.keepCounts(ctx) })
	acking.Go(func() { c.ackAll(context.WithoutCancel(ctx), stopped) })
	if c.cfg.Filter != nil {
		acking.Go(func() { c.storeMarks(context.WithoutCancel(ctx), stopped) })
	}
	confirming.Go(func() { c.confirmAllReplicated(context.WithoutCancel(ctx), handled) })
	handling.Go(func() { c.handleAll(ctx, work, stopped) })

	c.awaitWorker(ctx)
	c.receive(ctx, work)
	close(work)
	handling.Wait()
	close(handled)
	confirming.Wait()
	close(stopped)
	acking.Wait()
	c.finish(ctx) // before the retries end, so that other receivers get the rest at once
	retries.Wait()
	c.addCounts(ctx)
	return nil
}

// Ready is closed when Run has registered this process in the database, so its death is noticed.
func (c *Consumer) Ready() <-chan struct{} { return c.retries.Ready() }

// longestPoll is how long one Receive may take: an SQS poll of 20 s, and as much for the reply.
const longestPoll = 40 * time.Second

// watchProgress registers the receive loop with the service's liveness check. The loop always
// counts as due, since the source cannot say whether messages wait.
func (c *Consumer) watchProgress(ctx context.Context) {
	// Twice the handler's time, because a transaction that lost a race runs again.
	c.loop = progress.From(ctx).Loop("receiving of "+c.cfg.Name, longestPoll+2*(c.handler.Timeout+abandonAfter), nil)
}

// awaitWorker waits until this process is registered, because its death is not noticed before.
func (c *Consumer) awaitWorker(ctx context.Context) {
	if c.handler.form == triggered {
		return // a Trigger's deliveries are never suspected
	}
	select {
	case <-c.retries.Ready():
	case <-ctx.Done():
	}
}

// atOnce is how many deliveries, or batches, are handled at once on arrival.
func (c *Consumer) atOnce() int {
	if c.handler.mode == StoreFirst {
		return c.cfg.RetryConcurrency
	}
	return c.cfg.Concurrency
}
