package outbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// A Relay publishes the events of one sink. It is a [job.Worker] whose handler publishes: any number of them, in any number of
// processes, share the work, and each aggregate is published in order all the same.
type Relay struct {
	cfg       Config
	pool      *pgxpool.Pool
	batchSink pawl.BatchSink // nil: the sink takes no batches
	calls     chan struct{}  // a token for each call of the database about batches that is on its way
	worker    *job.Worker
	breaker   *breaker
}

// batchCalls is how many calls of the database about batches a relay makes at once. With one for each
// call of publish in hand, the server took a fifth more time for them.
const batchCalls = 2

// NewRelay checks the configuration against the pool and fills in the defaults. As a rule a relay takes two connections of the pool at once, four if
// its sink takes batches, and one beside the pool; see [job.Presence]. A claim that takes long is made beside the next one, and can add one or two
// for a moment. Events in hand take none.
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

// Run publishes until ctx ends, then stops claiming, lets what is being published end within Drain, gives the rest back, and
// returns nil. Errors are those of [job.Worker.Run]: it cannot start.
func (r *Relay) Run(ctx context.Context) error { return r.worker.Run(ctx) }

// Kick makes the relay look for events now instead of after its next poll; it needs no database. For relays of other processes
// see the function [Kick].
func (r *Relay) Kick() { r.worker.Kick() }

// Ready is closed when Run has registered the relay in the database, for the first time.
func (r *Relay) Ready() <-chan struct{} { return r.worker.Ready() }

// publish ends each event with a verdict. What the sink cannot carry is a dead letter before anything is sent. A crash in between
// publishes once more, with the same ids. No transaction is open.
func (r *Relay) publish(ctx context.Context, ts []job.Task[[]byte]) []error {
	messages, verdicts := make([]pawl.Message, 0, len(ts)), make([]error, len(ts))
	places, trials := make([]int, 0, len(ts)), make([]trial, 0, len(ts)) // of the messages among ts
	for i, t := range ts {
		m, ok := messageOf(t.Job, r.cfg.Source)
		if !ok {
			verdicts[i] = pawl.Final(errors.New("this job is no event: its headers have no ce-id and ce-type"))
			continue
		}
		if verdicts[i] = r.carried(m); verdicts[i] != nil {
			continue
		}
		messages, places, trials = append(messages, m), append(places, i), append(trials, trial{event: t.ID})
	}
	batches := r.batchesOf(ctx, ts, messages, places, trials)
	r.deliver(ctx, messages, trials, batches)
	excused, why := r.breaker.judge(append(trials, broken(batches)...))
	for n, i := range places {
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

// report passes events on, but for one a job of what publish has reported in one.
func (r *Relay) report(ctx context.Context, e pawl.Event) {
	if e.Kind != pawl.EventSnoozed {
		r.cfg.Hooks.Emit(ctx, e)
	}
}
