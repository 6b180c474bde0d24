package outbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// A Relay publishes the events of one sink. It is a [job.Worker] whose handler calls the sink. Any
// number of relays in any number of processes share the work and keep each aggregate's order.
type Relay struct {
	cfg       Config
	pool      *pgxpool.Pool
	batchSink pawl.BatchSink // nil: the sink takes no batches
	calls     chan struct{}  // semaphore of batchCalls
	worker    *job.Worker
	breaker   *breaker
}

// batchCalls is how many database calls about batches a relay makes at once. With one for each
// running call of publish, the server needed a fifth more time for them.
const batchCalls = 2

// NewRelay checks the configuration and fills in the defaults. A relay usually takes two
// connections of the pool at once, or four if its sink takes batches, and one outside the pool (see
// [job.Presence]). A slow claim overlaps with the next one and can add one or two for a moment.
// Events being published take none.
//
// Errors: [pawl.ErrArgumentInvalid], with the field and what to set instead.
func NewRelay(pool *pgxpool.Pool, cfg Config) (*Relay, error) {
	if pool == nil {
		return nil, &pawl.Error{Op: "outbox.relay", Code: pawl.CodeArgumentInvalid, Err: errors.New("the pool is missing")}
	}
	if err := cfg.complete(); err != nil {
		return nil, &pawl.Error{Op: "outbox.relay", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	r := &Relay{cfg: cfg, pool: pool, breaker: newBreaker(cfg.Probe), calls: make(chan struct{}, batchCalls)}
	if cfg.MaxBatch > 1 {
		r.batchSink, _ = cfg.Sink.(pawl.BatchSink)
	}
	handler := job.HandleMany(kind, r.publish).With(job.ManyPolicy{Policy: job.Policy{Timeout: cfg.Timeout, Backoff: cfg.Backoff}, BatchSize: cfg.MaxPublish})
	var err error
	r.worker, err = job.NewWorker(pool, job.Config{
		Queues:   []job.Queue{{Name: QueueOf(cfg.SinkName), Concurrency: cfg.Concurrency, Admit: r.breaker.admit}},
		Handlers: []job.Handler{handler},
		Poll:     cfg.Poll, Lease: cfg.Lease, Presence: cfg.Presence, Timeout: cfg.Timeout, Backoff: cfg.Backoff,
		MaxCrashes: cfg.MaxCrashes, ShutdownTimeout: cfg.ShutdownTimeout, Name: cfg.Name,
		Hooks: pawl.Hooks{OnEvent: r.report},
	})
	if err != nil {
		return nil, err
	}
	r.breaker.wake = r.worker.Kick
	return r, nil
}

// Run publishes until ctx is cancelled. It then stops claiming, waits up to ShutdownTimeout for
// running calls, releases the remaining events and returns nil. It returns an error only if it
// cannot start; see [job.Worker.Run].
func (r *Relay) Run(ctx context.Context) error { return r.worker.Run(ctx) }

// Kick makes the relay look for events now instead of at its next poll. It needs no database. For
// relays in other processes use the function [Kick].
func (r *Relay) Kick() { r.worker.Kick() }

// Ready is closed when Run has registered the relay in the database for the first time.
func (r *Relay) Ready() <-chan struct{} { return r.worker.Ready() }

// publish returns a verdict for each event. No transaction is open. An event that the sink cannot
// carry becomes a dead letter before anything is sent.
func (r *Relay) publish(ctx context.Context, ts []job.Task[[]byte]) []error {
	messages, verdicts := make([]pawl.Message, 0, len(ts)), make([]error, len(ts))
	// indexes holds the index of each message in ts.
	indexes, trials := make([]int, 0, len(ts)), make([]trial, 0, len(ts))
	for i, t := range ts {
		m, ok := messageOf(t.Job, r.cfg.Source)
		if !ok {
			verdicts[i] = pawl.Final(errors.New("this job is not an event: its headers lack ce-id or ce-type"))
			continue
		}
		if verdicts[i] = r.carried(m); verdicts[i] != nil {
			continue
		}
		messages, indexes, trials = append(messages, m), append(indexes, i), append(trials, trial{event: t.ID})
	}
	batches := r.batchesOf(ctx, ts, messages, indexes, trials)
	r.deliver(ctx, messages, trials, batches)
	excused, why := r.breaker.judge(append(trials, broken(batches)...))
	for n, i := range indexes {
		verdicts[i] = trials[n].err
		if trials[n].excused {
			verdicts[i] = job.Snooze(trials[n].pause)
		}
	}
	r.finish(ctx, ts, batches, verdicts)
	if excused > 0 {
		r.cfg.Hooks.Emit(context.WithoutCancel(ctx), pawl.Event{Kind: pawl.EventError, Op: "outbox.publish", Scope: QueueOf(r.cfg.SinkName),
			JobID: ts[0].ID, Count: excused, Err: why})
	}
	return verdicts
}

// report leaves out EventSnoozed: publish reports all uncharged events of a call in one.
func (r *Relay) report(ctx context.Context, e pawl.Event) {
	if e.Kind != pawl.EventSnoozed {
		r.cfg.Hooks.Emit(ctx, e)
	}
}
