package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/pawltest"
)

// batches gives the consumer a batch handler that applies a batch in one statement.
func (b *bed) batches(refuse func(pawl.Delivery) error) {
	b.form.handle, b.config.Concurrency = nil, 2
	b.form.many = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
		keys, bodies := make([]string, len(ds)), make([]string, len(ds))
		for i, d := range ds {
			keys[i], bodies[i] = d.Key, string(d.Payload)
		}
		if _, err := tx.Exec(ctx, "insert into effect (key, body) select * from unnest($1::text[], $2::text[])", keys, bodies); err != nil {
			return err
		}
		for _, d := range ds {
			if err := refuse(d); err != nil {
				return err
			}
		}
		return nil
	}
}

func nothing(pawl.Delivery) error { return nil }

// A batch commits together, and a key that is in it twice takes effect once (trap T16).
func TestT16_AKeyTwiceInOneBatchOfDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t, "alter table effect add column xid xid8 default pg_current_xact_id()")
	b.batches(nothing)
	insert := b.form.many
	b.form.many = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
		keys := map[string]bool{}
		for _, d := range ds {
			keys[d.Key] = true
		}
		if len(keys) != len(ds) {
			t.Errorf("%d keys in a batch of %d", len(keys), len(ds))
		}
		return insert(ctx, tx, ds)
	}
	for n := range 300 {
		b.source.Send(order(n), order(n))
	}
	b.consume()
	b.wantEffects(300)
	if n := b.count("select count(distinct xid) from effect"); n > 150 {
		t.Errorf("%d transactions for 300 deliveries", n)
	}
	if n := b.counters.Count(pawl.EventDuplicateSkipped); n < 200 {
		t.Errorf("%d duplicates were answered", n)
	}
}

// A delivery that fails by itself does not affect its batch: only it is stored and retried.
func TestBatch_OneBadMessageCostsOnlyItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.form.MaxAttempts = 2
	b.batches(func(d pawl.Delivery) error {
		if d.Key == "order-7" || d.Key == "order-50" {
			return errors.New("cannot be done")
		}
		return nil
	})
	for n := range 100 {
		b.source.Send(order(n))
	}
	b.consume()
	b.wantEffects(98)
	if n := b.count("select count(*) from pawl_v1.dead_letters where attempts = 2"); n != 2 {
		t.Errorf("%d dead letters", n)
	}
	if n := b.count("select count(*) from pawl.inbox where job_id is not null"); n != 2 {
		t.Errorf("%d stored, want 2", n)
	}
}

// Failures that lose the whole transaction are still attributed to the deliveries that cause them.
func TestBatch_LostTransactionGoesOneByOne(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table strict (n int unique deferrable initially deferred); insert into strict values (1)")
	b.form.MaxAttempts, b.form.Timeout = 1, 300*time.Millisecond
	b.batches(nothing)
	insert := b.form.many
	b.form.many = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
		for _, d := range ds {
			query := map[string]string{"order-3": "insert into strict values (1)", "order-8": "select pg_sleep(60)"}[d.Key]
			if _, err := tx.Exec(ctx, query); err != nil {
				return err
			}
		}
		return insert(ctx, tx, ds)
	}
	for n := range 12 {
		b.source.Send(order(n))
	}
	b.consume()
	b.wantEffects(10)
	if n := b.count("select count(*) from pawl_v1.dead_letters"); n != 2 {
		t.Errorf("%d dead letters", n)
	}
}

// A key that another transaction holds, or a mismatch, does not delay the rest of a batch (trap
// T12).
func TestT12_OneInFlightKeyDoesNotBlockTheBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.batches(nothing)
	claim := func(d pawl.Delivery, body string) pgx.Tx {
		tx, err := b.pool.Begin(t.Context())
		if err == nil {
			_, err = inbox.Take(t.Context(), tx, pawl.Intent{Scope: "orders", Key: d.Key, Fingerprint: pawl.FingerprintOf([]byte(body))})
		}
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	reused := claim(order(5), "another body")
	if err := reused.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := claim(order(50), "body 50")
	for n := range 100 {
		b.source.Send(order(n))
	}
	b.start()
	b.until("the others are done", func() bool { return b.source.Open() == 1 })
	b.wantEffects(98)
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	b.wantEffects(99)
	if n := b.counters.Count(pawl.EventMismatch); n != 1 {
		t.Errorf("%d mismatches", n)
	}
}

// The reply to the COMMIT of a batch is lost, committed or not: each order takes effect once.
func TestBatch_LostCommitReplies(t *testing.T) {
	t.Parallel()
	proxy, through := wireproxy.Start(t, pawltest.URL(t, effects))
	b := setupOn(t, through)
	random := rand.New(rand.NewPCG(3, 4)) // guarded by the proxy's lock
	var cut atomic.Int32
	proxy.OnCommit(func() wireproxy.Cut {
		// on a busy machine there are few, large batches
		if cut.Load() < 3 || random.IntN(2) == 0 {
			cut.Add(1)
			return []wireproxy.Cut{wireproxy.BeforeSend, wireproxy.BeforeReply}[random.IntN(2)]
		}
		return wireproxy.Pass
	})
	b.batches(func(d pawl.Delivery) error {
		if d.Handle != nil && d.Key == "order-77" {
			return errors.New("not the first time")
		}
		return nil
	})
	for n := range 300 {
		b.source.Send(order(n), order(n))
	}
	stop := b.start()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	proxy.OnCommit(nil)
	b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	b.wantEffects(300)
	if cut.Load() < 3 {
		t.Errorf("only %d COMMITs were cut", cut.Load())
	}
}

// Deliveries with an ordering key keep their order across batches.
func TestBatch_KeepsOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	b.form.handle = nil
	b.form.many = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
		for _, d := range ds {
			if d.OrderingKey == "" {
				continue
			}
			if err := note(ctx, tx, d); err != nil {
				return err
			}
			if d.Handle != nil && d.Key == "l-4" {
				return fmt.Errorf("not the first time")
			}
		}
		return nil
	}
	for n := range 12 {
		b.source.Send(ordered("l", n), ordered("m", n), order(n))
	}
	b.consume()
	b.wantOrder(2, 12)
}
