package pawltest

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/outbox"
)

// Relayed is the result of DrainRelay.
type Relayed struct {
	Published []pawl.Message // in the order of acceptance
	Refused   []RefusedEvent // each attempt that the sink refused
	// Left are unpublished events: to be retried, dead, behind one of these, or in a paused queue.
	Left []ops.Job
}

// A RefusedEvent is one refused attempt to publish an event, with the sink's error.
type RefusedEvent struct {
	pawl.Message
	Err error
}

// DrainRelay publishes the events of cfg.Sink that are due now, in order, and returns the result.
// Commit before you drain. A refused event is tried once and left. If cfg.Backoff is not set, its
// next attempt is an hour later. If cfg.Sink is nil, every event is accepted and dropped.
//
// An [outbox.Relay] does the work. Its Poll is 10 ms, and it holds no presence lock. The test fails
// if there is still work after a minute. The sink's errors do not fail the test; check the result.
func DrainRelay(tb testing.TB, pool *pgxpool.Pool, cfg outbox.Config) Relayed {
	tb.Helper()
	relayed, err := drainRelay(pool, cfg, drainLimit)
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	return relayed
}

func drainRelay(pool *pgxpool.Pool, cfg outbox.Config, limit time.Duration) (Relayed, error) {
	watched, lastErr := &watchedSink{sink: cfg.Sink}, &lastError{}
	cfg.Sink = watched
	if log, takesBatches := watched.sink.(pawl.BatchSink); takesBatches {
		cfg.Sink = watchedBatchSink{watched, log}
	}
	cfg.Poll, cfg.Presence = drainPoll, job.Presence{Off: true}
	cfg.Backoff = cmp.Or(cfg.Backoff, job.Backoff{Base: time.Hour, Max: time.Hour})
	cfg.Hooks = pawl.Join(cfg.Hooks, pawl.Hooks{OnEvent: lastErr.event})
	relay, err := outbox.NewRelay(pool, cfg)
	if err != nil {
		return Relayed{}, err
	}
	queue := outbox.QueueOf(cmp.Or(cfg.SinkName, outbox.DefaultSink))
	var left []ops.Job
	err = whileRunning(context.Background(), relay.Run, limit, func(ctx context.Context) (err error) {
		left, err = untilDone(ctx, pool, queue, nothingOpen, (*standing).dueWork, func(_ int, work []ops.Job) error {
			return fmt.Errorf("after %v there are still events to publish:%s%s", limit, listed(work), lastErr)
		})
		return err
	})
	watched.mu.Lock()
	defer watched.mu.Unlock()
	return Relayed{watched.published, watched.refused, left}, err
}

// dueWork returns the jobs that a worker would claim now, or whose status will soon change.
func (s *standing) dueWork() (work []ops.Job) {
	for _, j := range s.jobs {
		if s.moves(j) || j.Status == ops.StatusPending && due(j) && s.claimable(j) {
			work = append(work, j)
		}
	}
	return work
}

// A watchedSink records the results of a sink. Without a sink it accepts all.
type watchedSink struct {
	sink pawl.Sink

	mu        sync.Mutex
	published []pawl.Message
	refused   []RefusedEvent
}

func (w *watchedSink) Publish(ctx context.Context, ms []pawl.Message) (errs []error) {
	if w.sink != nil {
		errs = w.sink.Publish(ctx, ms)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, m := range ms {
		if i < len(errs) && errs[i] != nil {
			w.refused = append(w.refused, RefusedEvent{m, errs[i]})
			continue
		}
		w.published = append(w.published, m)
	}
	return errs
}

// Carries asks the sink if it is a Carrier.
func (w *watchedSink) Carries(m pawl.Message) error {
	if c, knows := w.sink.(pawl.Carrier); knows {
		return c.Carries(m)
	}
	return nil
}

// A watchedBatchSink records the results of a BatchSink.
type watchedBatchSink struct {
	*watchedSink
	log pawl.BatchSink
}

func (w watchedBatchSink) PublishBatch(ctx context.Context, ms []pawl.Message) (accepted int, err error) {
	accepted, err = w.log.PublishBatch(ctx, ms)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published = append(w.published, ms[:min(max(accepted, 0), len(ms))]...)
	if err != nil && accepted >= 0 && accepted < len(ms) {
		w.refused = append(w.refused, RefusedEvent{ms[accepted], err})
	}
	return accepted, err
}
