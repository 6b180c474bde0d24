package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/migrate"
)

// Config configures a [Flow]. Consumer, Source and Handler are required; the zero value of the rest is fit for
// production.
type Config struct {
	// Consumer names who has seen a message: two consumers of one message both run. 1 to 200 octets. Changing it
	// forgets everything seen.
	Consumer string
	// Source of deliveries.
	Source pawl.Source
	// Handler applies one delivery in the transaction it is handed.
	Handler pawl.Handler
	// Fingerprint identifies a delivery's payload. Default: the raw body, [pawl.FingerprintOf]. Give another if the
	// sender changes irrelevant parts on retry, for instance one over [pawl.FingerprintJSON].
	Fingerprint func(pawl.Delivery) (pawl.Fingerprint, error)
	// Concurrency is how many fresh deliveries are handled at once; each holds one connection of the pool. By default
	// half the pool may sit in handlers, this and RetryConcurrency together, so that handlers which take a second
	// connection cannot starve each other. More is faster if yours never do; two connections must stay for housekeeping.
	Concurrency int
	// RetryConcurrency is how many landed deliveries are retried at once. Default an eighth of the pool, at least 1.
	RetryConcurrency int
	// Timeout cancels a handler's context. A transaction open for long holds back vacuum for the whole database.
	// Default 30 s.
	Timeout time.Duration
	// MaxBody is the largest payload handled, in octets; a larger one goes to the dead letters whole. Default 1 MiB, at
	// most 4 MiB.
	MaxBody int
	// MaxAttempts bounds the tries of one delivery, the first included. Default 25, 1 to 1000.
	MaxAttempts int
	// Backoff between the tries.
	Backoff job.Backoff
	// SoloAfter is the receive count from which a delivery without an inbox row is suspected of killing its process: it
	// is landed first and runs alone, where its crashes are counted. Default 3. 1 lands everything first.
	SoloAfter int
	// Lease of landed deliveries being retried; see [job.Config]. Default 30 s.
	Lease time.Duration
	// Presence is the evidence that a process has died before its lease is over; see [job.Presence].
	Presence job.Presence
	// Drain is how long a stop lets handlers finish. Default 25 s.
	Drain time.Duration
	// Name is shown to operators, as in [job.Config]. Default host name and process id.
	Name string
	// Hooks receive what happens.
	Hooks pawl.Hooks
}

// A Flow consumes one source.
type Flow struct {
	pool    *pgxpool.Pool
	cfg     Config
	queue   string // of landed deliveries
	retries *job.Worker

	acks     chan pawl.Receipt
	inFlight inFlight
	away     atomic.Bool // the database could not be reached when last asked
}

// landedKind is the kind of the job that owns a landed delivery.
const landedKind = "delivery"

// maxConsumer leaves room for the queue name made from it.
const maxConsumer = 200

// serviceConns is how many connections stay free of handlers, for heartbeats, claims and landing.
const serviceConns = 2

// New checks the configuration against the pool and fills in the defaults.
func New(pool *pgxpool.Pool, cfg Config) (*Flow, error) {
	if err := cfg.complete(int(pool.Config().MaxConns)); err != nil {
		return nil, &pawl.Error{Op: "flow.new", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	f := &Flow{pool: pool, cfg: cfg, queue: "inbox/" + cfg.Consumer,
		acks: make(chan pawl.Receipt, cfg.Concurrency)}
	retries, err := job.NewWorker(pool, job.Config{
		Queues:   []job.Queue{{Name: f.queue, Concurrency: cfg.RetryConcurrency}},
		Handlers: []job.Handler{job.HandleTx(landedKind, f.retry)},
		Lease:    cfg.Lease, Presence: cfg.Presence, Timeout: cfg.Timeout, Backoff: cfg.Backoff, Drain: cfg.Drain, Name: cfg.Name, Hooks: cfg.Hooks,
	})
	f.retries = retries
	return f, err
}

func (c *Config) complete(conns int) error {
	if c.Source == nil || c.Handler == nil {
		return errors.New("the fields Source and Handler are required")
	}
	probe := pawl.Intent{Scope: c.Consumer, Key: "any", Fingerprint: pawl.FingerprintOf()}
	if err := probe.Validate(); err != nil || len(c.Consumer) > maxConsumer {
		return fmt.Errorf("the Consumer must have 1 to %d octets of UTF-8 without control characters, it is %.300q", maxConsumer, c.Consumer)
	}
	if c.MaxBody < 0 || c.MaxBody > 4<<20 {
		return fmt.Errorf("the limit MaxBody must lie between 1 and %d octets, it is %d", 4<<20, c.MaxBody)
	}
	if c.MaxAttempts < 0 || c.MaxAttempts > 1000 {
		return fmt.Errorf("the limit MaxAttempts must lie between 1 and 1000, it is %d", c.MaxAttempts)
	}
	if c.RetryConcurrency <= 0 {
		c.RetryConcurrency = max(1, conns/8)
	}
	if c.Concurrency <= 0 {
		c.Concurrency = max(1, conns/2-c.RetryConcurrency)
	}
	if need := c.Concurrency + c.RetryConcurrency + serviceConns; need > conns {
		return fmt.Errorf("the pool has %d connections, but Concurrency %d + RetryConcurrency %d + %d for housekeeping need %d: "+
			"set pool_max_conns=%d in the database URL or lower Concurrency", conns, c.Concurrency, c.RetryConcurrency, serviceConns, need, need)
	}
	if c.Fingerprint == nil {
		c.Fingerprint = func(d pawl.Delivery) (pawl.Fingerprint, error) { return pawl.FingerprintOf(d.Body), nil }
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	if c.MaxBody == 0 {
		c.MaxBody = 1 << 20
	}
	if c.SoloAfter <= 0 {
		c.SoloAfter = 3
	}
	if c.Drain <= 0 {
		c.Drain = 25 * time.Second
	}
	return nil
}

// Run consumes until ctx ends, then drains and returns nil. It returns an error only if it cannot start: the database
// is unreachable or its schema does not fit. A source that fails is retried with back-off and reported as an event.
func (f *Flow) Run(ctx context.Context) error {
	if err := migrate.Check(ctx, f.pool); err != nil {
		return err
	}
	work := make(chan pawl.Delivery)
	stopped := make(chan struct{})
	var retries, handling, acking sync.WaitGroup
	retries.Go(func() { f.retryLanded(ctx) })
	acking.Go(func() { f.ackAll(context.WithoutCancel(ctx), stopped) })
	handling.Go(func() { f.handleAll(ctx, work, stopped) })

	f.receive(ctx, work)
	close(work)
	handling.Wait()
	close(stopped)
	acking.Wait()
	retries.Wait()
	return nil
}

// deliver takes one delivery through claim, handle and commit. The receipt is valid if the database holds its outcome;
// otherwise the delivery must be given back after the wait.
func (f *Flow) deliver(ctx context.Context, d pawl.Delivery) (r pawl.Receipt, wait time.Duration) {
	intent, unfit := f.intent(d)
	if unfit != nil {
		return f.bury(ctx, d, unfit)
	}
	if !f.inFlight.enter(intent.Key) {
		return f.conflict(ctx, d, nil)
	}
	defer f.inFlight.leave(intent.Key)
	if d.Receives >= f.cfg.SoloAfter {
		return f.landSuspect(ctx, d, intent)
	}
	return f.apply(ctx, d, intent)
}

// undecided says what becomes of a delivery whose transaction ended with an error: a known key with another payload is
// kept as a dead letter; whatever else it is, the delivery goes back to the source, unacknowledged, for a moment.
func (f *Flow) undecided(ctx context.Context, d pawl.Delivery, op string, err error) (pawl.Receipt, time.Duration) {
	switch {
	case errors.Is(err, pawl.ErrMessageReused):
		return f.bury(ctx, d, err)
	case pawl.CodeOf(err) == "55P03":
		return f.conflict(ctx, d, err)
	case pawl.Unreachable(err):
		f.away.Store(true)
	}
	f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventTrouble, Op: op, Err: err})
	return pawl.Receipt{}, jittered(2 * time.Second)
}

func (f *Flow) emit(ctx context.Context, e pawl.Event) {
	e.Scope = f.cfg.Consumer
	f.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}

func (f *Flow) emitOf(ctx context.Context, d pawl.Delivery, e pawl.Event) {
	e.Key, e.MessageID = d.Key, d.MessageID
	f.emit(ctx, e)
}
