package pawltest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
)

const orders = "create table orders (id text, body text)"

func order(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
	_, err := tx.Exec(ctx, "insert into orders values ($1, $2)", d.Key, string(d.Payload))
	return err
}

func consuming(s *pawltest.Source, h func(context.Context, pgx.Tx, consumer.Message[[]byte]) error) consumer.Config {
	return consumer.Config{Name: "orders", Source: s, Handler: consumer.HandleTx(h), Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}
}

// Deliveries that come several times, in any order, take effect once. Failures are retried.
func TestConsume(t *testing.T) {
	t.Parallel()
	pool, source := pawltest.DB(t, orders), &pawltest.Source{}
	var all []pawl.Delivery
	for _, key := range []string{"a", "b", "c", "flaky", "dead"} {
		for range 3 {
			all = append(all, pawl.Delivery{Key: key, Payload: []byte(key)})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	source.Send(all...)
	source.Send(pawl.Delivery{Payload: []byte("no key")})
	failed := make(chan struct{}, 1)
	failed <- struct{}{}
	n := pawltest.Consume(t, pool, consuming(source, func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
		if d.Key == "dead" {
			return pawl.Final(errBroken)
		}
		select {
		case <-failed:
			return errBroken
		default:
		}
		return order(ctx, tx, d)
	}))
	if got := count(t, pool, "select count(*) from orders"); got != 4 {
		t.Errorf("%d orders", got)
	}
	if succeeded, failed, open := n.Count(pawl.EventSucceeded), n.Count(pawl.EventFailed), source.Open(); succeeded != 4 || failed != 1 || open != 0 {
		t.Errorf("%d succeeded, %d failed, %d open", succeeded, failed, open)
	}
	if dead := count(t, pool, "select count(*) from pawl_v1.dead_letters"); dead != 2 {
		t.Errorf("%d dead letters", dead)
	}
	if n := pawltest.Consume(t, pool, consuming(source, order)); n.Count(pawl.EventSucceeded) != 0 {
		t.Errorf("consumed again: %d", n.Count(pawl.EventSucceeded))
	}
	if s := pawltest.Seen(t, pool, "orders", "dead"); s.JobID == 0 || !s.ProcessedAt.IsZero() {
		t.Errorf("the dead letter is seen as %+v", s)
	}
}

// A delivery at a gate is left, and runs when the missing one has come.
func TestConsume_LeavesWhatIsHeld(t *testing.T) {
	t.Parallel()
	pool, source := pawltest.DB(t, orders), &pawltest.Source{}
	cfg, first := consuming(source, order), int64(1)
	cfg.Handler = consumer.HandleTx(order).With(consumer.TxPolicy{SequenceGate: &consumer.SequenceGate{Mode: consumer.GateStrict, First: &first,
		Of: func(d pawl.Delivery) (string, int64, error) { return "account", int64(len(d.Payload)), nil }}})
	source.Send(pawl.Delivery{Key: "2", Payload: []byte("22")}, pawl.Delivery{Key: "3", Payload: []byte("333")})
	if n := pawltest.Consume(t, pool, cfg); n.Count(pawl.EventHeld) != 2 || n.Count(pawl.EventSucceeded) != 0 {
		t.Errorf("%d held, %d succeeded", n.Count(pawl.EventHeld), n.Count(pawl.EventSucceeded))
	}
	source.Send(pawl.Delivery{Key: "1", Payload: []byte("1")})
	if n := pawltest.Consume(t, pool, cfg); n.Count(pawl.EventSucceeded) != 3 {
		t.Errorf("%d succeeded", n.Count(pawl.EventSucceeded))
	}
}

// A consumer that does not finish fails the test, as does a source of another type.
func TestConsume_EndsInTime(t *testing.T) {
	t.Parallel()
	pool, source := pawltest.DB(t, orders), &pawltest.Source{}
	source.Send(pawl.Delivery{Key: "a"})
	cfg := consuming(source, func(ctx context.Context, _ pgx.Tx, _ consumer.Message[[]byte]) error {
		<-ctx.Done()
		return ctx.Err()
	})
	cfg.ShutdownTimeout = 10 * time.Millisecond
	said := judged(t, func(tb testing.TB) { pawltest.ConsumeWithin(tb, pool, cfg, time.Second) })
	if !strings.Contains(said, "after 1s 1 deliveries are not acknowledged") {
		t.Errorf("said %q", said)
	}
	if said := judged(t, func(tb testing.TB) { pawltest.Consume(tb, pool, consumer.Config{}) }); !strings.Contains(said, "want a *pawltest.Source") {
		t.Errorf("said %q", said)
	}
	if err := source.Ack(t.Context(), pawl.Receipt{}); !errors.Is(err, pawltest.ErrNoCommit) {
		t.Errorf("a zero receipt: %v", err)
	}
}
