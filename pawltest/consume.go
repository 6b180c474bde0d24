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
	counters := &pawl.Counters{}
	source, ok := cfg.Source.(*Source)
	if !ok {
		tb.Fatalf("pawltest: the Source is a %T, want a *pawltest.Source", cfg.Source)
		return counters
	}
	cfg.Hooks = pawl.Join(cfg.Hooks, counters.Hooks())
	runConsumer(tb, pool, cfg, limit, func(context.Context) {}, source.Open)
	return counters
}

// runConsumer runs a consumer while send sends, and then until no delivery is open and no stored
// one is work.
func runConsumer(tb testing.TB, pool *pgxpool.Pool, cfg consumer.Config, limit time.Duration, send func(context.Context), open func() int) {
	tb.Helper()
	lastErr := &lastError{}
	cfg.Handler, cfg.Presence = impatient(cfg.Handler), job.Presence{Off: true}
	cfg.Hooks = pawl.Join(cfg.Hooks, pawl.Hooks{OnEvent: lastErr.event})
	c, err := consumer.New(pool, cfg)
	if err == nil {
		err = whileRunning(context.Background(), c.Run, limit, func(ctx context.Context) error {
			send(ctx)
			_, err := untilDone(ctx, pool, "inbox/"+cfg.Name, open, (*standing).storedWork, func(open int, work []ops.Job) error {
				return fmt.Errorf("after %v %d deliveries are not acknowledged, and there is still work on stored deliveries:%s%s",
					limit, open, listed(work), lastErr)
			})
			return err
		})
	}
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
}

// untilDone waits until nothing is open and a queue has no work, and returns the jobs that are left
// in it. If ctx ends first, it returns the error that late makes.
func untilDone(ctx context.Context, pool *pgxpool.Pool, queue string, open func() int, workOf func(*standing) []ops.Job,
	late func(open int, work []ops.Job) error) (left []ops.Job, err error) {
	for {
		began := time.Now()
		n := open() // Deliveries acknowledged by now are committed when look takes its snapshot.
		s, err := look(ctx, pool, []string{queue})
		work := workOf(&s)
		switch {
		case err == nil && n == 0 && len(work) == 0:
			return s.jobs, nil
		case err != nil && ctx.Err() == nil:
			return nil, err
		case !pace.Sleep(ctx, max(5*time.Millisecond, time.Since(began))):
			return nil, late(n, work)
		}
	}
}

func nothingOpen() int { return 0 }

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
