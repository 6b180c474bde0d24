//go:build proof

package pawlrabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// benchTables has the effect, and a bare client's table of processed keys.
const benchTables = `
create table effect (key text not null, body bytea not null);
create table seen (key text primary key, at timestamptz not null default clock_timestamp())`

const (
	benchHands    = 16 // concurrent handlers, of both
	benchPrefetch = 4000
)

// BenchmarkBesideABareClient compares a consumer with a bare client of amqp091-go, which writes the
// same effect and its own row per key. Rounds alternate, and the best of each counts. Use
// -benchtime 20000x for the number of messages.
func BenchmarkBesideABareClient(b *testing.B) {
	for _, c := range []struct {
		name  string
		batch int
		bar   float64
	}{{"one by one", 1, 0.7}, {"batches of 100", 100, 0.5}} {
		b.Run(c.name, func(b *testing.B) {
			f := queueOn(b, sharedServer(b), quorum())
			config, err := pgxpool.ParseConfig(pawltest.URL(b, benchTables))
			f.must(err)
			config.MaxConns = benchHands + 8
			pool, err := pgxpool.NewWithConfig(b.Context(), config)
			f.must(err)
			b.Cleanup(pool.Close)
			var ours, bare float64
			for round := range 3 {
				f.fill(b.N, fmt.Sprint("bare-", round))
				bare = max(bare, f.bare(b, pool, b.N, c.batch))
				f.fill(b.N, fmt.Sprint("ours-", round))
				ours = max(ours, f.ours(b, pool, b.N, c.batch))
			}
			var effects int
			f.must(pool.QueryRow(b.Context(), "select count(*) from effect").Scan(&effects))
			if effects != 6*b.N {
				b.Errorf("%d effects of %d messages", effects, 6*b.N)
			}
			b.ReportMetric(ours, "ours/s")
			b.ReportMetric(bare, "bare/s")
			b.ReportMetric(ours/bare, "ratio")
			if b.N >= 5000 && ours < c.bar*bare {
				b.Errorf("%.0f/s beside %.0f/s: %.2f, the bar is %.2f", ours, bare, ours/bare, c.bar)
			}
		})
	}
}

// fill publishes n messages and removes those left from the round before. A closing channel may
// lose its last acknowledgements, and the two clients do not share keys.
func (f *fixture) fill(n int, prefix string) {
	f.Helper()
	_, err := f.ch.QueuePurge(f.queue, false)
	f.must(err)
	body := make([]byte, 200)
	confirms := make([]*amqp.DeferredConfirmation, 0, n)
	for i := range n {
		confirm, err := f.ch.PublishWithDeferredConfirm("", f.queue, false, false,
			amqp.Publishing{MessageId: fmt.Sprint(prefix, "-", i), DeliveryMode: amqp.Persistent, Body: body})
		f.must(err)
		if confirms = append(confirms, confirm); i >= 500 {
			confirms[i-500].Wait()
		}
	}
	for _, confirm := range confirms {
		if !confirm.Wait() {
			f.Fatal("a message was not confirmed")
		}
	}
}

// bare consumes n messages with a hand-written client, and returns messages per second.
func (f *fixture) bare(b *testing.B, pool *pgxpool.Pool, n, batch int) float64 {
	ch, err := f.conn.Channel()
	f.must(err)
	f.must(ch.Qos(benchPrefetch, 0, false))
	start := time.Now()
	in, err := ch.Consume(f.queue, "", false, false, false, false, nil)
	f.must(err)
	work := make(chan []amqp.Delivery, benchHands)
	var hands sync.WaitGroup
	for range benchHands {
		hands.Go(func() {
			for ds := range work {
				if err := applyBare(b.Context(), pool, ds); err != nil {
					b.Error(err)
					return
				}
				for _, d := range ds {
					_ = d.Ack(false)
				}
			}
		})
	}
	var ds []amqp.Delivery
	for taken := range n {
		if ds = append(ds, <-in); len(ds) == batch || taken == n-1 {
			work <- ds
			ds = nil
		}
	}
	close(work)
	hands.Wait()
	took := time.Since(start)
	f.must(ch.Close())
	return float64(n) / took.Seconds()
}

// applyBare writes new keys and their effects in one transaction.
func applyBare(ctx context.Context, pool *pgxpool.Pool, ds []amqp.Delivery) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if len(ds) == 1 {
			tag, err := tx.Exec(ctx, "insert into seen (key) values ($1) on conflict do nothing", ds[0].MessageId)
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			_, err = tx.Exec(ctx, "insert into effect values ($1, $2)", ds[0].MessageId, ds[0].Body)
			return err
		}
		keys, bodies := make([]string, len(ds)), make([][]byte, len(ds))
		for i, d := range ds {
			keys[i], bodies[i] = d.MessageId, d.Body
		}
		_, err := tx.Exec(ctx, `with fresh as (insert into seen (key) select unnest($1::text[]) on conflict do nothing returning key)
			insert into effect select m.key, m.body from unnest($1::text[], $2::bytea[]) as m (key, body) join fresh using (key)`, keys, bodies)
		return err
	})
}

// ours consumes n messages through package consumer, and returns messages per second.
func (f *fixture) ours(b *testing.B, pool *pgxpool.Pool, n, batch int) float64 {
	source, err := pawlrabbitmq.Open(b.Context(), dialer(f.server.Addr()), f.queue, pawlrabbitmq.Config{Prefetch: benchPrefetch})
	f.must(err)
	var done atomic.Int64
	ended := make(chan struct{})
	var handler consumer.Handler = consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		_, err := tx.Exec(ctx, "insert into effect values ($1, $2)", m.Key, m.Payload)
		return err
	})
	if batch > 1 {
		handler = consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []consumer.Message[[]byte]) error {
			keys, bodies := make([]string, len(ms)), make([][]byte, len(ms))
			for i, m := range ms {
				keys[i], bodies[i] = m.Key, m.Payload
			}
			_, err := tx.Exec(ctx, "insert into effect select * from unnest($1::text[], $2::bytea[])", keys, bodies)
			return err
		}).With(consumer.ManyTxPolicy{BatchSize: batch})
	}
	c, err := consumer.New(pool, consumer.Config{Name: "bench", Source: source, Handler: handler, Concurrency: benchHands,
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Kind == pawl.EventSucceeded && done.Add(int64(max(e.Count, 1))) == int64(n) {
				close(ended)
			}
			if e.Kind == pawl.EventError || e.Kind == pawl.EventRetryable {
				b.Log(e.Kind, e.Op, e.Err)
			}
		}}})
	f.must(err)
	ctx, stop := context.WithCancel(b.Context())
	running := make(chan error, 1)
	start := time.Now()
	go func() { running <- c.Run(ctx) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		b.Fatalf("%d of %d", done.Load(), n)
	}
	took := time.Since(start)
	stop()
	if err := <-running; err != nil && !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
	return float64(n) / took.Seconds()
}
