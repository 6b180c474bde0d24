package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/lock"
)

// blocking are the sources on which a released delivery holds up others.
var blocking = map[string]pawl.SourceInfo{"a log": {Cumulative: true}, "a prefetch": {ReleaseBlocks: true}}

// If released deliveries hold up others, New refuses RetryFromSource: a few could hold up all.
func TestConsumer_RefusesToRetryFromABlockingSource(t *testing.T) {
	t.Parallel()
	for name, info := range blocking {
		b := setup(t)
		b.member().info = info
		b.form.Mode = consumer.RetryFromSource
		_, err := b.newConsumer()
		if pawl.CodeOf(err) != pawl.CodeArgumentInvalid || !strings.Contains(err.Error(), "RetryFromDatabase") {
			t.Errorf("%s said %v", name, err)
		}
		for _, mode := range []consumer.Mode{consumer.RetryFromDatabase, consumer.StoreFirst} {
			b.form.Mode = mode
			if _, err := b.newConsumer(); err != nil {
				t.Errorf("%s, mode %d: %v", name, mode, err)
			}
		}
	}
}

// A Trigger needs no Retention on a source that keeps messages forever, and forgets no row there.
func TestConsumer_ATriggerOnASourceThatKeepsForEver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.member().info = pawl.SourceInfo{RedeliveryHorizon: pawl.Forever, ReleaseBlocks: true}
	b.form.trigger = func(context.Context, pawl.Delivery) error { return errors.New("not now") }
	b.source.Send(order(1), order(2))
	stop := b.start()
	b.until("all are stored", func() bool { return b.source.Open() == 0 })
	b.until("it says that it remembers for ever", func() bool {
		return b.count("select count(*) from pawl.consumer where name = 'orders' and window_ms is null") == 1
	})
	stop()
	if n := b.count("select count(*) from pawl.inbox"); n != 2 {
		t.Errorf("%d rows in the inbox, want one each", n)
	}
	b.form.trigger = nil
	if _, err := b.newConsumer(); pawl.CodeOf(err) != pawl.CodeArgumentInvalid || !strings.Contains(err.Error(), "Retention.Forever") {
		t.Errorf("a HandleTx: %v", err)
	}
}

// A busy resource does not hold up the source: a delivery that finds it busy is stored at its first
// arrival, although the source counts no receives.
func TestConsumer_ABusyResourceHoldsUpNoSource(t *testing.T) {
	t.Parallel()
	for name, info := range blocking {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			busyResource(t, info)
		})
	}
}

func busyResource(t *testing.T, info pawl.SourceInfo) {
	b := setup(t)
	b.member().info = info
	b.form.Exclusive = func(pawl.Delivery) string { return "ledger" }
	b.config.RetryConcurrency = 1
	held, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(context.Background()) }()
	if locked, err := lock.TryLock(t.Context(), held, "consumer", "ledger"); err != nil || !locked {
		t.Fatalf("locked %t, %v", locked, err)
	}
	b.source.Invisibility = 10 * 60e9
	for n := range 8 {
		b.source.Send(order(n))
	}
	b.start()
	b.until("all acknowledged while the resource is busy", func() bool { return b.source.Open() == 0 })
	if n := b.source.Receives(); n != 8 {
		t.Errorf("%d receives of 8", n)
	}
	b.wantEffects(0)
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until("all took effect", func() bool { return b.count("select count(*) from effect") == 8 })
	b.wantEffects(8)
}

// A failed trigger does not hold up the source: its delivery is stored once, however often it
// comes, and retried from the database.
func TestConsumer_AFailedTriggerHoldsUpNoSource(t *testing.T) {
	t.Parallel()
	for name, info := range blocking {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failedTrigger(t, info)
		})
	}
}

func failedTrigger(t *testing.T, info pawl.SourceInfo) {
	b := setup(t)
	b.member().info = info
	var calls atomic.Int32
	mended := make(chan struct{})
	b.form.handle, b.form.trigger = nil, func(ctx context.Context, d pawl.Delivery) error {
		calls.Add(1)
		if strings.HasPrefix(d.Key, "bad") {
			select {
			case <-mended:
			default:
				return errors.New("not now")
			}
		}
		_, err := b.pool.Exec(ctx, "insert into effect values ($1, $2) on conflict do nothing", d.Key, string(d.Payload))
		return err
	}
	if _, err := b.pool.Exec(t.Context(), "create unique index on effect (key)"); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		bad := pawl.Delivery{Key: fmt.Sprint("bad ", n), MessageID: fmt.Sprint("topic/0/", n), Payload: []byte("x")}
		b.source.Send(bad, order(n), bad)
	}
	b.start()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	if n := b.count("select count(*) from pawl.job where queue = 'inbox/orders'"); n != 5 {
		t.Errorf("%d are stored, want 5", n)
	}
	close(mended)
	if _, err := b.pool.Exec(t.Context(), "update pawl.job set available_at = now() where status = 'pending'"); err != nil {
		t.Fatal(err)
	}
	b.until("all took effect", func() bool { return b.count("select count(*) from effect") == 10 })
	b.until("no job is left", func() bool { return b.count("select count(*) from pawl.job") == 0 })
}

// The consumer follows the batch sizes that its source declares.
func TestConsumer_FollowsTheSizesOfItsSource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		receive, ack int // declared sizes
		most, acks   int // resulting sizes
		batch        int
	}{
		{"defaults", 0, 0, 10, 10, 0},
		{"larger", 250, 100, 250, 100, 0},
		{"smaller", 3, 1, 3, 1, 0},
		{"a larger batch of the handler", 50, 10, 400, 10, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := b.member()
			m.info.ReceiveBatch, m.info.AckBatch = c.receive, c.ack
			if c.batch > 0 {
				b.batches(nothing)
				b.form.batchSize = c.batch
			} else {
				b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error { return nil }
			}
			for n := range 120 {
				b.source.Send(order(n))
			}
			b.start()
			b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
			n := m.noted()
			for _, asked := range n.most {
				if asked != c.most {
					t.Fatalf("asked for %d, want %d", asked, c.most)
				}
			}
			largest := 0
			for _, acks := range n.acks {
				largest = max(largest, acks)
			}
			if largest > c.acks {
				t.Errorf("%d acknowledged in one call, want %d at most", largest, c.acks)
			}
		})
	}
}
