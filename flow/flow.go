package flow

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/migrate"
)

// A Flow consumes one source.
type Flow struct {
	pool    *pgxpool.Pool
	cfg     Config
	queue   string // of landed deliveries
	retries *job.Worker

	acks     chan pawl.Receipt
	unproved chan unproved
	inFlight inFlight
	groups   groups
	deaths   deaths
	away     atomic.Bool  // our own statements failed, or went unanswered, when last sent
	setbacks atomic.Int32 // how often in a row a probe found nothing, with no delivery decided in between
}

// landedKind is the kind of the job that owns a landed delivery.
const landedKind = "delivery"

// maxConsumer leaves room for the queue name made from it.
const maxConsumer = 200

// serviceConns is how many connections stay free of handlers, for heartbeats, claims and landing.
const serviceConns = 2

// New checks the configuration against the pool and fills in the defaults.
func New(pool *pgxpool.Pool, cfg Config) (*Flow, error) {
	if pool == nil {
		return nil, &pawl.Error{Op: "flow.new", Code: pawl.CodeArgumentInvalid, Err: errors.New("the pool is missing")}
	}
	if err := cfg.complete(int(pool.Config().MaxConns)); err != nil {
		return nil, &pawl.Error{Op: "flow.new", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	f := &Flow{pool: pool, cfg: cfg, queue: "inbox/" + cfg.Consumer,
		acks: make(chan pawl.Receipt, cfg.Concurrency), unproved: make(chan unproved, maxUnproved)}
	// A delivery that must wait at its gate is copied from its job's row.
	landed, working := job.HandleTx(landedKind, f.retry).With(job.Policy{KeepRow: cfg.Gate != nil}), cfg.RetryConcurrency
	if cfg.LongHandler != nil {
		landed = job.Handle(landedKind, f.work)
	}
	if cfg.Mode == Land {
		working = cfg.Concurrency
	}
	retries, err := job.NewWorker(pool, job.Config{
		Queues:   []job.Queue{{Name: f.queue, Concurrency: working}},
		Handlers: []job.Handler{landed},
		Lease:    cfg.Lease, MaxCrashes: cfg.MaxCrashes, Presence: cfg.Presence, Timeout: cfg.Timeout, Backoff: cfg.Backoff, Drain: cfg.Drain, Name: cfg.Name, Hooks: cfg.Hooks,
	})
	f.retries = retries
	return f, err
}

// atOnce is how many deliveries, or batches, are taken from the source at once.
func (f *Flow) atOnce() int {
	if f.cfg.Mode == Land {
		return f.cfg.RetryConcurrency
	}
	return f.cfg.Concurrency
}

// Run consumes until ctx ends, then drains and returns nil. It returns an error only if it cannot start: the database
// is unreachable or its schema does not fit. A source that fails is retried with back-off and reported as an event.
func (f *Flow) Run(ctx context.Context) error {
	if err := migrate.Check(ctx, f.pool); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it began
		}
		return err
	}
	work := make(chan pawl.Delivery)
	handled, stopped := make(chan struct{}), make(chan struct{})
	var retries, handling, proving, acking sync.WaitGroup
	if f.cfg.Trigger == nil { // else nothing lands, and nothing is remembered
		retries.Go(func() { f.retryLanded(ctx) })
		retries.Go(func() { f.keepInbox(ctx) })
	}
	acking.Go(func() { f.ackAll(context.WithoutCancel(ctx), stopped) })
	proving.Go(func() { f.proveAll(context.WithoutCancel(ctx), handled) })
	handling.Go(func() { f.handleAll(ctx, work, stopped) })

	f.awaitWorker(ctx)
	f.receive(ctx, work)
	close(work)
	handling.Wait()
	close(handled)
	proving.Wait()
	close(stopped)
	acking.Wait()
	retries.Wait()
	return nil
}

// deliver takes one delivery through claim, handle and commit. The receipt is valid if the database holds its outcome;
// otherwise the delivery must be given back after the wait.
func (f *Flow) deliver(ctx context.Context, d pawl.Delivery) (r pawl.Receipt, wait time.Duration) {
	if f.cfg.Trigger != nil {
		return f.trigger(ctx, d)
	}
	it, unfit := f.identify(d)
	if unfit != nil {
		return f.bury(ctx, it.Delivery, unfit)
	}
	if !f.inFlight.enter(it.intent.Key) {
		return f.conflict(ctx, it.Delivery, nil)
	}
	defer f.inFlight.leave(it.intent.Key)
	suspected, err := f.suspected(ctx, d)
	if err != nil {
		return f.undecided(ctx, d, "flow.suspect", err)
	}
	if suspected {
		return f.landSuspect(ctx, it)
	}
	if f.cfg.Mode == Land {
		return f.landUnhandled(ctx, it, f.untried(), pawl.EventLanded, nil)
	}
	return f.apply(ctx, it)
}

// undecided says what becomes of a delivery whose transaction ended with an error: one whose handler failed goes back if the
// source is to retry it; a known key with another payload is kept as a dead letter; whatever else it is, the delivery goes back
// to the source, unacknowledged, for a moment.
func (f *Flow) undecided(ctx context.Context, d pawl.Delivery, op string, err error) (pawl.Receipt, time.Duration) {
	switch {
	case errors.As(err, new(leftToSource)):
		f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventRetryable, Op: "flow.handle", Attempt: max(d.Receives, 1), Err: err})
		return pawl.Receipt{}, time.Minute
	case errors.Is(err, pawl.ErrMessageReused):
		return f.bury(ctx, d, err)
	case pawl.CodeOf(err) == lockNotHad:
		return f.conflict(ctx, d, err)
	case away(op, err):
		f.away.Store(true)
	}
	f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventTrouble, Op: op, Err: err})
	return pawl.Receipt{}, jittered(2 * time.Second)
}

// away reports whether an error says that the database is not to be counted on now. A trigger's is the user's own, and says so only if
// the database was not reached. What a transaction of ours failed with does, whatever it is: a standby, a full disk, a schema or a
// right that is missing, a COMMIT without an answer. Lost races do not, nor what is wrong with the delivery itself.
func away(op string, err error) bool {
	code := pawl.CodeOf(err)
	switch {
	case pawl.Unreachable(err), pawl.MayHaveHappened(err), code == pawl.CodeSchemaMismatch:
		return true
	case op == "flow.trigger", errors.Is(err, context.Canceled), code == "40001", code == "40P01", strings.HasPrefix(string(code), "P4"):
		return false
	}
	return code != ""
}

func (f *Flow) emit(ctx context.Context, e pawl.Event) {
	e.Scope = f.cfg.Consumer
	f.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}

func (f *Flow) emitOf(ctx context.Context, d pawl.Delivery, e pawl.Event) {
	e.Key, e.MessageID = d.Key, d.MessageID
	f.emit(ctx, e)
}
