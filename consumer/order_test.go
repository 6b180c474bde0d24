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
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// The handlers of ordered deliveries write to ran, and draw n while they hold the lane. It has no
// constraint, so that doubled or disordered effects show.
const ran = "create table ran (n bigint generated always as identity, lane text not null, seq int not null)"

func ordered(lane string, seq int) pawl.Delivery {
	return pawl.Delivery{Key: fmt.Sprintf("%s-%d", lane, seq), OrderingKey: lane, Payload: fmt.Appendf(nil, "%d", seq)}
}

func note(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
	_, err := tx.Exec(ctx, "insert into ran (lane, seq) values ($1, $2::int)", d.OrderingKey, string(d.Payload))
	return err
}

func (b *bed) wantOrder(lanes, each int) {
	b.Helper()
	if n := b.count("select count(*) from ran"); n != lanes*each {
		b.Errorf("%d ran, want %d", n, lanes*each)
	}
	if n := b.count("select count(*) from ran as a join ran as b on b.lane = a.lane and b.seq >= a.seq and b.n < a.n"); n != 0 {
		b.Errorf("%d ran before one that was ahead of them, or twice", n)
	}
}

// Deliveries of one ordering key take effect in the order received, for any failure on any path.
func TestConsumer_OrderSurvivesFailures(t *testing.T) {
	t.Parallel()
	const lanes, each = 8, 25
	proxy, through := wireproxy.Start(t, pawltest.URL(t, ran))
	b := setupOn(t, through)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) // guarded by the proxy's lock
	proxy.OnCommit(func() wireproxy.Cut {
		switch random.IntN(12) {
		case 0:
			return wireproxy.BeforeSend
		case 1:
			return wireproxy.BeforeReply
		}
		return wireproxy.Pass
	})
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if err := note(ctx, tx, d); err != nil {
			return err
		}
		if rand.IntN(4) == 0 {
			return errors.New("not now")
		}
		return nil
	}
	for seq := range each {
		for lane := range lanes {
			b.source.Send(ordered(fmt.Sprintf("lane %d", lane), seq))
		}
	}
	stop := b.start()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	proxy.OnCommit(nil)
	b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	b.wantOrder(lanes, each)
	if n := b.counters.Count(pawl.EventStored); n == 0 {
		t.Error("no delivery was stored behind another: the test shows nothing")
	}
}

// If a delivery is released to its source, those behind it are released too.
func TestConsumer_ReleasesWaitingDeliveriesToo(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	b.form.handle = note
	held, err := b.pool.Begin(t.Context()) // another transaction is handling the first
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(context.Background()) }()
	first := ordered("l", 0)
	_, err = inbox.Take(t.Context(), held, pawl.Intent{Scope: "orders", Key: first.Key, Fingerprint: pawl.FingerprintOf(first.Payload)})
	if err != nil {
		t.Fatal(err)
	}
	for seq := range 5 {
		b.source.Send(ordered("l", seq))
	}
	b.source.Send(ordered("other", 0))
	b.start()
	b.until("the first was given back", func() bool { return b.counters.Count(pawl.EventConflict) >= 2 })
	b.until("the other lane goes on", func() bool { return b.count("select count(*) from ran") == 1 })
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	b.until("none stored", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	if n := b.count("select count(*) from ran as a join ran as b on b.lane = a.lane and b.seq > a.seq and b.n < a.n"); n != 0 {
		t.Errorf("%d out of order", n)
	}
}

// A dead letter blocks the deliveries behind it or not, as the policy says.
func TestConsumer_LanePolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[job.LanePolicy]int{"": 1, job.LaneBlock: 1, job.LanePark: 3, job.LaneSkip: 3} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			b := setup(t, ran)
			b.form.LanePolicy = policy
			b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
				if d.Key == "l-1" {
					return pawl.Final(errors.New("no such account"))
				}
				return note(ctx, tx, d)
			}
			for seq := range 4 {
				b.source.Send(ordered("l", seq))
			}
			b.source.Send(ordered("other", 0))
			stop := b.start()
			b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
			b.until("all that may run has", func() bool {
				return b.count("select count(*) from pawl.job where status in ('pending', 'processing')") == 0
			})
			stop()
			if n := b.count("select count(*) from ran where lane = 'l'"); n != want {
				t.Errorf("%d of the lane ran, want %d", n, want)
			}
			if n := b.count("select count(*) from ran where lane = 'other'"); n != 1 {
				t.Errorf("%d of the other lane ran", n)
			}
		})
	}
}

// Handlers of one resource never overlap, for any key and consumer, inline or retried.
func TestConsumer_ExclusiveHandlersDoNotOverlap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var inside, most atomic.Int32
	b.form.Exclusive = func(pawl.Delivery) string { return "the ledger" }
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		patience.Elapse(2 * time.Millisecond)
		if d.Receives == 1 && d.Key == "order-3" && d.Handle != nil {
			return errors.New("not the first time")
		}
		return apply(ctx, tx, d)
	}
	rival := *b
	rival.source, rival.config.Name = newSource(), "mailing"
	rival.config.Source = rival.source
	rival.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		d.Key = "mailing " + d.Key
		return b.form.handle(ctx, tx, d)
	}
	for n := range 8 {
		b.source.Send(order(n))
		rival.source.Send(order(n))
	}
	b.start()
	rival.start()
	b.until("both drained", func() bool { return b.source.Open() == 0 && rival.source.Open() == 0 })
	b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	b.wantEffects(16)
	if most.Load() != 1 {
		t.Errorf("%d handlers at once", most.Load())
	}
}

// PayloadKey makes the payload the key if producers send none.
func TestConsumer_BodyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Key = consumer.PayloadKey
	b.source.Send(pawl.Delivery{Payload: []byte("one")}, pawl.Delivery{Payload: []byte("one")}, pawl.Delivery{Payload: []byte("two")}, order(1))
	b.consume()
	b.wantEffects(3)
}

// A flood returns further deliveries of one ordering key without a limit.
type flood struct {
	next atomic.Int32
	most int32
}

func (s *flood) Receive(ctx context.Context, limit int) (batch []pawl.Delivery, err error) {
	if s.next.Load() >= s.most {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for range limit {
		batch = append(batch, ordered("l", int(s.next.Add(1))-1))
	}
	return batch, nil
}

func (*flood) Info() pawl.SourceInfo { return pawl.SourceInfo{} }

func (*flood) Ack(context.Context, ...pawl.Receipt) error { return nil }

func (*flood) Release(context.Context, time.Duration, ...pawl.Delivery) error { return nil }

// While a delivery is handled, at most a hundred and a batch wait behind it, however many the
// source has. They then continue in order.
func TestConsumer_BoundsParkedDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	source, entered, enough := &flood{most: 200}, make(chan struct{}, 200), make(chan struct{})
	b.config.Source = source
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		entered <- struct{}{}
		<-enough
		return note(ctx, tx, d)
	}
	b.start()
	<-entered
	b.until("a hundred stand behind it", func() bool { return source.next.Load() > 100 })
	var received int32
	patience.Watch(100*time.Millisecond, func() { received = source.next.Load() })
	if received > 110 {
		t.Errorf("%d were received", received)
	}
	close(enough)
	b.until("all ran", func() bool { return b.count("select count(*) from ran") == int(source.most) })
	b.wantOrder(1, int(source.most))
}
