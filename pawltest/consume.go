package pawltest

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
)

// Consume runs a [consumer.Consumer] on pool until cfg.Source, a [Source], is empty and every
// stored delivery is done or dead. It leaves those at a sequence gate or behind a dead letter.
//
// It returns the number of events of each kind, such as [pawl.EventSucceeded],
// [pawl.EventDuplicateSkipped], [pawl.EventRetryable] and [pawl.EventFailed]. If the handler's
// policy sets no back-off, it is at most 10 ms. The consumer holds no presence lock.
//
// The test fails if there is still work after a minute.
func Consume(tb testing.TB, pool *pgxpool.Pool, cfg consumer.Config) *pawl.Counters {
	tb.Helper()
	return consume(tb, pool, cfg, drainLimit)
}

func consume(tb testing.TB, pool *pgxpool.Pool, cfg consumer.Config, limit time.Duration) *pawl.Counters {
	tb.Helper()
	counters, lastErr := &pawl.Counters{}, &lastError{}
	source, ok := cfg.Source.(*Source)
	if !ok {
		tb.Fatalf("pawltest: the Source is a %T, want a *pawltest.Source", cfg.Source)
		return counters
	}
	cfg.Handler = impatient(cfg.Handler)
	cfg.Presence = job.Presence{Off: true}
	cfg.Hooks = pawl.Join(cfg.Hooks, counters.Hooks(), pawl.Hooks{OnEvent: lastErr.event})
	f, err := consumer.New(pool, cfg)
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
		return counters
	}
	err = whileRunning(context.Background(), f.Run, limit, func(ctx context.Context) error {
		for {
			began := time.Now()
			// Deliveries acknowledged by now are committed when look takes its snapshot.
			open := source.Open()
			s, err := look(ctx, pool, []string{"inbox/" + cfg.Name})
			work := s.storedWork()
			if err == nil && open == 0 && len(work) == 0 {
				return nil
			}
			if err != nil && ctx.Err() == nil {
				return err
			}
			if !pace.Sleep(ctx, max(5*time.Millisecond, time.Since(began))) {
				return fmt.Errorf("after %v %d deliveries are not acknowledged, and there is still work on stored deliveries:%s%s",
					limit, open, listed(work), lastErr)
			}
		}
	})
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	return counters
}

// impatient returns the handler, with a short back-off if it has none of its own.
func impatient(h consumer.Handler) consumer.Handler {
	short := job.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond}
	switch h := h.(type) {
	case consumer.TxHandler:
		p := h.Policy()
		p.Backoff = cmp.Or(p.Backoff, short)
		return h.With(p)
	case consumer.SQLHandler:
		p := h.Policy()
		p.Backoff = cmp.Or(p.Backoff, short)
		return h.With(p)
	case consumer.ManyTxHandler:
		p := h.Policy()
		p.Backoff = cmp.Or(p.Backoff, short)
		return h.With(p)
	case consumer.LeasedHandler:
		p := h.Policy()
		p.Backoff = cmp.Or(p.Backoff, short)
		return h.With(p)
	}
	return h
}

// storedWork returns the stored deliveries whose status will change soon. It omits deliveries that
// wait at a gate: they have no attempts and are not due.
func (s *standing) storedWork() (work []ops.Job) {
	for _, j := range s.jobs {
		if s.moves(j) || j.Status == ops.StatusPending && (due(j) || j.Attempts > 0) && s.claimable(j) {
			work = append(work, j)
		}
	}
	return work
}
