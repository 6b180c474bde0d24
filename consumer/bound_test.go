package consumer_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// At MaxStored open deliveries, receiving stops, and the stored ones are retried. So a broken
// dependency does not move a whole queue into the database. When they are done, the rest is
// received. All processes of a consumer share the bound.
func TestConsumer_ReceivesNothingWhileTooMuchIsStored(t *testing.T) {
	t.Parallel()
	const messages, most, processes = 400, 40, 2
	b := setup(t)
	var mended atomic.Bool
	var mu sync.Mutex
	tries, paused := map[string]int{}, []pawl.Event(nil)
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		mu.Lock()
		tries[d.Key]++
		mu.Unlock()
		if !mended.Load() {
			return errors.New("the dependency is down")
		}
		return apply(ctx, tx, d)
	}
	b.form.MaxAttempts = 1000
	b.config.MaxStored, b.config.Concurrency, b.config.RetryConcurrency = most, 2, 1
	b.config.Hooks = pawl.Join(b.counters.Hooks(), pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventReceivePaused {
			mu.Lock()
			paused = append(paused, e)
			mu.Unlock()
		}
	}})
	for n := range messages {
		b.source.Send(order(n))
	}
	for range processes {
		b.start()
	}
	told := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(paused)
	}
	b.until("all processes are paused", func() bool { return told() >= processes })
	mu.Lock()
	e, tried := paused[0], 0
	for _, n := range tries {
		tried += n
	}
	mu.Unlock()
	if e.Op != "consumer.receive" || e.Scope != "orders" || e.Count != most || e.Err == nil {
		t.Errorf("reported %+v", e)
	}
	// Stored by the other process between two counts, and for each process received at the bound.
	const slack = most + processes*22
	stored := b.count("select count(*) from pawl.job")
	if stored < most || stored > most+slack {
		t.Errorf("%d are stored, want %d and not many more", stored, most)
	}
	b.until("what is stored is tried again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		again := 0
		for _, n := range tries {
			again += n
		}
		return again > tried+2*stored
	})
	if n := b.count("select count(*) from pawl.job"); n > most+slack || b.source.Open() < messages-most-slack {
		t.Errorf("%d are stored in the end, and %d open at the source", n, b.source.Open())
	}
	if n := told(); n != processes {
		t.Errorf("reported %d times within a minute", n)
	}
	mended.Store(true)
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	b.wantEffects(messages)
}

// A negative bound is no bound, and neither is the default if senders wait for acknowledgements.
func TestConsumer_StoresWithoutBound(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"negative": -1, "of senders that wait": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.member().info.AckAtOnce = most == 0
			if _, err := b.pool.Exec(t.Context(), `insert into pawl.job (queue, kind, payload, available_at)
select 'inbox/orders', 'delivery', '', now() + interval '1 day' from generate_series(1, 100000)`); err != nil {
				t.Fatal(err)
			}
			b.config.MaxStored = most
			b.source.Send(order(1))
			b.start()
			b.until("it is received", func() bool { return b.source.Open() == 0 })
		})
	}
}

// The bound holds from the start, and counts deliveries that earlier runs stored.
func TestConsumer_IsPausedFromTheStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.pool.Exec(t.Context(), `insert into pawl.job (queue, kind, payload, available_at)
select 'inbox/orders', 'delivery', '', now() + interval '1 day' from generate_series(1, 100000)`); err != nil {
		t.Fatal(err)
	}
	b.source.Send(order(1))
	b.start()
	b.until("it is paused", func() bool { return b.counters.Count(pawl.EventReceivePaused) > 0 })
	// A count that fails bounds nothing.
	if n := b.source.Receives(); n != 0 && b.counters.Count(pawl.EventError) == 0 {
		t.Errorf("%d receives at the default bound", n)
	}
	if _, err := b.pool.Exec(t.Context(), "delete from pawl.job where id in (select id from pawl.job limit 10001)"); err != nil {
		t.Fatal(err)
	}
	b.until("it is received", func() bool { return b.source.Open() == 0 })
}
