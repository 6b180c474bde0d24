package counted

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
)

// An assignment says what a worker process does.
type assignment struct {
	Relay    bool // publishes instead of consuming
	Database string
	Spec     Spec
	Mutant   string // of this package
	Seed     uint64

	Batch       bool          // its handler takes many deliveries in one transaction
	Least, Most time.Duration // how long a handler takes
	// Failures is the share of orders whose first attempt fails, so that the delivery is stored.
	Failures      float64
	LoseAcks      float64 // share of calls of Ack that are dropped
	LoseReceives  float64 // share of responses of Receive that are dropped
	SoloAfter     int
	MaxCrashes    int
	MaxPayload    int
	AllConcurrent int // concurrent handlers; 0: 5
}

const (
	consumerName    = "counted"
	shutdownTimeout = 10 * time.Second // of a worker process
	processConns    = 10
	processLease    = 2 * time.Second
)

var processBackoff = job.Backoff{Base: 20 * time.Millisecond, Max: 200 * time.Millisecond}

// A part is a consumer or a relay. Run runs it until its context ends.
type part interface{ Run(context.Context) error }

// runPart runs a part. It retries if no connection was free at the start, because the sessions of
// killed workers linger for a moment.
func runPart(ctx context.Context, p part) error {
	for {
		err := p.Run(ctx)
		if !pawl.Retryable(err) || !pace.Sleep(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

func (a assignment) part(ctx context.Context, open Opener, j *journal) (p part, closePool func(), err error) {
	config, err := pgxpool.ParseConfig(a.Database)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = processConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	if a.Relay {
		p, err = a.relay(ctx, pool, open, j)
	} else {
		p, err = a.consumer(ctx, pool, open, j)
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return p, pool.Close, nil
}

// opened opens a source or a sink, retrying for 30 s because the broker may be restarting.
func opened[T any](ctx context.Context, open func(context.Context, Spec) (T, error), s Spec) (it T, err error) {
	for end := time.Now().Add(30 * time.Second); ; {
		if it, err = open(ctx, s); err == nil || time.Now().After(end) || !pace.Sleep(ctx, 200*time.Millisecond) {
			return it, err
		}
	}
}

func (a assignment) relay(ctx context.Context, pool *pgxpool.Pool, open Opener, j *journal) (part, error) {
	sink, err := opened(ctx, open.Sink, a.Spec)
	if err != nil {
		return nil, err
	}
	return outbox.NewRelay(pool, outbox.Config{Sink: sink, Lease: processLease, Timeout: 5 * time.Second, Poll: 50 * time.Millisecond,
		Probe: 500 * time.Millisecond, Backoff: processBackoff, ShutdownTimeout: shutdownTimeout, Hooks: a.hooks(j)})
}

func (a assignment) consumer(ctx context.Context, pool *pgxpool.Pool, open Opener, j *journal) (part, error) {
	source, err := opened(ctx, open.Source, a.Spec)
	if err != nil {
		return nil, err
	}
	h := handler{assignment: a, pool: pool}
	policy := consumer.Policy{Lease: processLease, Backoff: processBackoff, SoloAfter: max(a.SoloAfter, 0), MaxCrashes: a.MaxCrashes, MaxPayload: a.MaxPayload}
	if policy.SoloAfter == 0 {
		// Kills and dropped responses make good messages suspect. Only the poison run needs
		// suspects.
		policy.SoloAfter = 1000
	}
	cfg := consumer.Config{Name: consumerName, Source: watch(source, a, j), Concurrency: 5, RetryConcurrency: 1, ShutdownTimeout: shutdownTimeout,
		Hooks: a.hooks(j), Handler: consumer.HandleTx(h.one).With(consumer.TxPolicy{Policy: policy})}
	if source.Info().RedeliveryHorizon == pawl.Forever {
		cfg.Retention.Forever = true
	}
	if a.AllConcurrent > 0 {
		cfg.Concurrency = a.AllConcurrent
	}
	if a.Batch {
		cfg.Concurrency = 2
		cfg.Handler = consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []consumer.Message[order]) error {
			for _, m := range ms {
				if err := h.one(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		}).With(consumer.ManyTxPolicy{Policy: policy})
	}
	return consumer.New(pool, cfg)
}

// quietEvents are frequent, and the journal already contains what they say.
var quietEvents = map[pawl.EventKind]bool{pawl.EventSucceeded: true, pawl.EventReceived: true, pawl.EventEmptyReceive: true, pawl.EventAcknowledged: true,
	pawl.EventReleased: true, pawl.EventPolled: true, pawl.EventWoken: true}

// hooks returns hooks that write events to the journal.
func (a assignment) hooks(j *journal) pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if quietEvents[e.Kind] {
			return
		}
		told := entry{What: string(e.Kind), Key: e.Key, ID: e.MessageID, Count: max(e.Count, 1)}
		if e.Err != nil {
			told.Text = fmt.Sprintf("%s: %.300s", e.Op, e.Err)
		}
		j.write(told)
	}}
}
