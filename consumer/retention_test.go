package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
)

// A farSource may redeliver a message for two weeks.
type farSource struct{ pawltest.Source }

func (*farSource) Info() pawl.SourceInfo { return pawl.SourceInfo{RedeliveryHorizon: 14 * day} }

const day = 24 * time.Hour

// A retention below the source's horizon is refused, with both durations (trap T37).
func TestT37_WindowBelowTheHorizonIsRefused(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pawltest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, c := range []struct {
		source    pawl.Source
		retention consumer.Retention
		refused   bool
	}{
		{&farSource{}, consumer.Retention{}, false},
		{&farSource{}, consumer.Retention{QueueRedelivery: 4 * day}, true},
		{&farSource{}, consumer.Retention{QueueRedelivery: 4 * day, Audit: 90 * day}, false},
		{&farSource{}, consumer.Retention{QueueRedelivery: 4 * day, Forever: true}, false},
		{newSource(), consumer.Retention{QueueRedelivery: time.Hour}, false},
	} {
		_, err := consumer.New(pool, consumer.Config{Name: "c", Source: c.source, Handler: handleFunc(apply).handler(), Concurrency: 1, RetryConcurrency: 1, Retention: c.retention})
		if refused := err != nil; refused != c.refused || refused && !(strings.Contains(err.Error(), "96h0m0s") && strings.Contains(err.Error(), "336h0m0s")) {
			t.Errorf("%T, %+v: %v", c.source, c.retention, err)
		}
	}
}

// forgotten is a purge that has made the consumer forget deliveries older than ago.
func forgotten(ago time.Duration) string {
	return fmt.Sprintf(`insert into pawl.inbox (consumer, key, hash, processed_at, received_at)
select 'orders', 'ancient', sha256(''), now(), clock_timestamp() - %d * interval '1 second'; select pawl_v1.inbox_purge('orders', %d, 10, '{"unreported": true}')`,
		int(ago.Seconds()), ago.Milliseconds()-1000)
}

// If nothing was ever purged, nothing is stale: a new consumer reads an old log from its beginning.
func TestConsumer_ReadsAnOldLog(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bed){
		"inline": func(*bed) {}, "batch": func(b *bed) { b.batches(nothing) }, "store": func(b *bed) { b.form.Mode = consumer.StoreFirst },
		"suspects": func(b *bed) { b.form.SoloAfter = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.config.Retention = consumer.Retention{QueueRedelivery: 14 * day}
			change(b)
			for n := range 30 {
				d := order(n)
				d.SentAt = time.Now().Add(-time.Duration(n) * 100 * day)
				b.source.Send(d, d)
			}
			b.consume()
			b.wantEffects(30)
			if n := b.counters.Count(pawl.EventDeliveryStale); n != 0 {
				t.Errorf("%d are stale", n)
			}
		})
	}
}

// Purged deliveries stay forgotten when the Retention is raised or set to Forever. A delivery as
// old as those is stale, although it is younger than the window. A later one is not (trap T37).
func TestT37_ALongerRetentionRemembersNoMore(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]consumer.Retention{"longer": {QueueRedelivery: 28 * day}, "for ever": {Forever: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, forgotten(2*day))
			b.config.Retention = r
			for n, ago := range []time.Duration{3 * day, 2*day - 10*time.Minute, day, 0} {
				d := order(n)
				d.SentAt = time.Now().Add(-ago)
				b.source.Send(d)
			}
			b.consume()
			b.wantEffects(2)
			if n := b.counters.Count(pawl.EventDeliveryStale); n != 2 {
				t.Errorf("%d are stale, want 2", n)
			}
		})
	}
}

// A purge is known at once. A process that has read that nothing was ever purged asks again about
// deliveries older than the window, at every isolation level.
func TestConsumer_APurgeIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, pawltest.URL(t, effects)+"&default_transaction_isolation="+strings.ReplaceAll(level, " ", "%20"))
			b.config.Retention = consumer.Retention{QueueRedelivery: 14 * day}
			first := order(1)
			first.SentAt = time.Now().Add(-100 * day)
			b.source.Send(first)
			b.start()
			b.until("the first took effect", func() bool { return b.source.Open() == 0 })
			b.wantEffects(1)
			if _, err := b.asks.Exec(t.Context(), "update pawl.inbox set received_at = received_at - interval '99 days'"); err != nil {
				t.Fatal(err)
			}
			if n := b.count("select p.purged from pawl_v1.inbox_purge('orders', 15 * 86400000::bigint) as p"); n != 1 {
				t.Fatalf("%d forgotten", n)
			}
			again, other := first, order(2)
			other.SentAt = time.Now().Add(-50 * day)
			b.source.Send(again, other)
			b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
			b.until("what is younger than what is forgotten took effect", func() bool { return b.count("select count(*) from effect") == 2 })
			b.wantEffects(2)
			if n := b.counters.Count(pawl.EventDeliveryStale); n != 1 {
				t.Errorf("%d are stale, want the one that is forgotten", n)
			}
		})
	}
}

// A source that keeps messages forever is reported with the longest horizon.
func TestConsumer_ReportsASourceThatKeepsForEver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.member().info.RedeliveryHorizon = pawl.Forever
	if _, err := b.newConsumer(); err == nil || !strings.Contains(err.Error(), "Retention.Forever") {
		t.Errorf("without Retention.Forever: %v", err)
	}
	b.config.Retention.Forever = true
	b.start()
	b.until("it is reported", func() bool {
		return b.count("select count(*) from pawl.consumer as c where c.name = 'orders' and c.window_ms is null and c.horizon_ms = 315360000000") == 1
	})
}

// A delivery older than the window may have taken effect and been purged: it is a dead letter, in
// every mode. ProducedAt counts if a redrive has renewed the broker's time (trap T37).
func TestT37_OlderThanTheWindowIsStale(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bed){
		"inline": func(*bed) {}, "batch": func(b *bed) { b.batches(nothing) }, "store": func(b *bed) { b.form.Mode = consumer.StoreFirst },
		"suspects": func(b *bed) { b.form.SoloAfter = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// like purges every minute, which leave rows a tenth longer
			b := setup(t, forgotten(15*day+12*time.Hour))
			b.config.Retention = consumer.Retention{QueueRedelivery: 14 * day}
			change(b)
			now := time.Now()
			for n, sent := range []pawl.Delivery{
				{SentAt: now.Add(-13 * day)}, {SentAt: now.Add(-15 * day)}, {SentAt: now, ProducedAt: now.Add(-15 * day)},
				{SentAt: now, ProducedAt: now.Add(-13 * day)}, {SentAt: now.Add(-15 * day), OrderingKey: "l"}, {OrderingKey: "l"}, {},
				{ProducedAt: time.Unix(0, 0)}, {SentAt: time.UnixMilli(-1)}, {SentAt: now, ProducedAt: time.UnixMilli(-1)}, {ProducedAt: now.AddDate(200, 0, 0)},
				{ProducedAt: time.Unix(now.UnixMilli(), 0)}, {ProducedAt: time.Unix(1<<63-1, 0)}, {SentAt: time.Unix(-1<<62, 0)},
			} {
				d := order(n)
				d.SentAt, d.ProducedAt, d.OrderingKey = sent.SentAt, sent.ProducedAt, sent.OrderingKey
				b.source.Send(d)
			}
			b.consume()
			b.wantEffects(11)
			if n := b.count("select count(*) from pawl_v1.dead_letters where attempts = 0 and last_errors -> -1 ->> 'code' = 'P4051'"); n != 3 {
				t.Errorf("%d dead letters, want 3", n)
			}
			if n := b.counters.Count(pawl.EventDeliveryStale); n != 3 {
				t.Errorf("%d events", n)
			}
		})
	}
}

// Rows older than the window and its tenth are deleted while the consumer runs. Younger ones stay.
func TestConsumer_ForgetsInTheBackground(t *testing.T) {
	t.Parallel()
	b := setup(t, `insert into pawl.inbox (consumer, key, hash, processed_at, received_at)
select 'orders', 'm' || g, sha256(''), now(), now() - g * interval '1 hour' from generate_series(1, 2500) as g`)
	b.config.Retention = consumer.Retention{QueueRedelivery: 10 * day}
	b.start()
	b.until("the old are forgotten", func() bool { return b.count("select count(*) from pawl.inbox") == 11*24-1 })
}

// If two programs of one consumer differ in a deploy, the longer retention holds. Otherwise the old
// program would run deliveries as new that the new one has purged.
func TestConsumer_TheLongerMemoryHolds(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.consumer_report('orders', 20 * 86400000::bigint)",
		`insert into pawl.inbox (consumer, key, hash, processed_at, received_at)
select 'orders', 'm' || g, sha256(''), now(), now() - g * interval '1 day' from generate_series(1, 30) as g`)
	b.config.Retention = consumer.Retention{QueueRedelivery: 10 * day}
	b.start()
	b.until("what the longer has forgotten is gone", func() bool { return b.count("select count(*) from pawl.inbox") == 22-1 })
	if n := b.count("select window_ms / 86400000 from pawl.consumer"); n != 20 {
		t.Errorf("%d days hold", n)
	}
}

// The consumer's retention is reported to the database.
func TestConsumer_ReportsItsMemory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Retention = consumer.Retention{QueueRedelivery: 10 * day}
	b.start()
	b.until("it is reported", func() bool {
		return b.count("select count(*) from pawl.consumer as c where c.name = 'orders' and c.window_ms = 10 * 86400000 and c.horizon_ms is null") == 1
	})
}

// With Retention.Forever nothing is stale, and no purge deletes a delivery, for any other Retention
// field or source. A table of more than a million rows causes a warning, once at each start.
func TestConsumer_ForeverForgetsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		horizon   bool
		retention consumer.Retention
	}{
		"with a window":  {false, consumer.Retention{QueueRedelivery: 10 * day, Forever: true}},
		"with a horizon": {true, consumer.Retention{Forever: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, `insert into pawl.inbox (consumer, key, hash, processed_at, received_at)
select 'orders', 'm' || g, sha256(''), now(), now() - interval '400 days' from generate_series(1, 10) as g`,
				"insert into pawl.delivery (consumer, key, payload, received_at) values ('orders', 'm1', '', now() - interval '400 days')",
				"update pg_class set reltuples = 2000000 where oid = 'pawl.inbox'::regclass")
			if c.horizon {
				far := &farSource{}
				far.Invisibility = b.source.Invisibility
				b.source, b.config.Source = &far.Source, far
			}
			b.config.Retention = c.retention
			old := order(1)
			old.SentAt = time.Now().Add(-400 * day)
			b.source.Send(old)
			warned := make(chan struct{}, 10)
			b.config.Hooks = pawl.Join(b.config.Hooks, pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
				if e.Kind == pawl.EventError && e.Err != nil && strings.Contains(e.Err.Error(), "Retention.Forever") {
					warned <- struct{}{}
				}
			}})
			stop := b.start()
			// Purging kept deliveries is the last step of a round.
			b.until("a round is over", func() bool { return b.count("select count(*) from pawl.delivery where key = 'm1'") == 0 })
			b.until("the old message is handled", func() bool { return b.source.Open() == 0 })
			stop()
			b.wantEffects(1)
			if n := b.count("select count(*) from pawl.inbox"); n != 11 {
				t.Errorf("%d deliveries are remembered, want 11", n)
			}
			if n := b.count("select count(*) from pawl.consumer where name = 'orders' and window_ms is null"); n != 1 {
				t.Error("it did not report that it remembers for ever")
			}
			if len(warned) != 1 {
				t.Errorf("%d warnings, want 1", len(warned))
			}
		})
	}
}
