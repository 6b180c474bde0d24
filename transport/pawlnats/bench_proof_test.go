//go:build proof

package pawlnats_test

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
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

// benchTables are the handlers' table and the bare client's table for deduplication.
const benchTables = `
create table effect (key text not null, body bytea not null);
create table seen (key text primary key, at timestamptz not null default clock_timestamp())`

const benchHands = 16 // concurrent handlers of both

// BenchmarkBesideABareClient compares a consumer with a bare nats.go client. The client writes the
// same effect and a row for deduplication. Rounds alternate in one run, from the first handled
// message on, and the best of each counts. Run it with -benchtime 50000x, the number of messages.
//
// In batches the database is the bottleneck, so the bar against the client is low there. A second
// bar compares with the same consumer without a broker.
func BenchmarkBesideABareClient(b *testing.B) {
	for _, c := range []struct {
		name  string
		batch int
		bar   float64
	}{{"one by one", 1, 0.7}, {"batches of 100", 100, 0.3}} {
		b.Run(c.name, func(b *testing.B) {
			f := setup(b, options{consumer: jetstream.ConsumerConfig{AckWait: 30 * time.Second, MaxAckPending: 20_000}})
			config, err := pgxpool.ParseConfig(pawltest.URL(b, benchTables))
			f.must(err)
			config.MaxConns = benchHands + 8
			pool, err := pgxpool.NewWithConfig(b.Context(), config)
			f.must(err)
			b.Cleanup(pool.Close)
			var ours, bare, memory float64
			for round := range 3 {
				f.fill(b.N, fmt.Sprint("bare-", round))
				bare = max(bare, f.bare(b, pool, b.N, c.batch))
				f.fill(b.N, fmt.Sprint("ours-", round))
				ours = max(ours, f.ours(b, pool, b.N, c.batch))
				h := &heap{prefix: fmt.Sprint("memory-", round), left: b.N}
				at := through(b, pool, h, b.N, c.batch)
				memory = max(memory, float64(b.N)/at.Sub(h.start).Seconds())
			}
			var effects int
			f.must(pool.QueryRow(b.Context(), "select count(*) from effect").Scan(&effects))
			if effects != 9*b.N {
				b.Errorf("%d effects of %d messages", effects, 9*b.N)
			}
			b.ReportMetric(ours, "ours/s")
			b.ReportMetric(bare, "bare/s")
			b.ReportMetric(memory, "memory/s")
			b.ReportMetric(ours/bare, "ratio")
			if b.N >= 5000 && ours < c.bar*bare {
				b.Errorf("%.0f/s against %.0f/s: %.2f, the bar is %.2f; without a broker %.0f/s", ours, bare, ours/bare, c.bar, memory)
			}
			if b.N >= 5000 && ours < 0.7*memory {
				b.Errorf("%.0f/s, but without a broker %.0f/s", ours, memory)
			}
		})
	}
}

// fill publishes n messages.
func (f *fixture) fill(n int, prefix string) {
	f.Helper()
	body := make([]byte, 200)
	var last jetstream.PubAckFuture
	for i := range n {
		m := nats.NewMsg(f.stream + ".placed")
		m.Header.Set("Idempotency-Key", fmt.Sprint(prefix, "-", i))
		m.Data = body
		var err error
		last, err = f.js.PublishMsgAsync(m, jetstream.WithStallWait(10*time.Second))
		f.must(err)
	}
	select {
	case <-f.js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		f.Fatal("not confirmed within a minute")
	}
	select {
	case <-last.Ok():
	case err := <-last.Err():
		f.Fatal(err)
	}
}

// bare consumes n messages with a handwritten client, and returns messages per second.
func (f *fixture) bare(b *testing.B, pool *pgxpool.Pool, n, batch int) float64 {
	consumer, err := f.js.Consumer(b.Context(), f.stream, f.consumer)
	f.must(err)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	work := make(chan []jetstream.Msg, benchHands)
	var done atomic.Int64
	ended := make(chan struct{})
	var hands sync.WaitGroup
	for range benchHands {
		hands.Go(func() {
			for ms := range work {
				if err := applyBare(ctx, pool, ms); err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				for _, m := range ms {
					_ = m.Ack()
				}
				if done.Add(int64(len(ms))) == int64(n) {
					close(ended)
				}
			}
		})
	}
	var start time.Time
	go func() {
		defer close(work)
		for handed := 0; handed < n && ctx.Err() == nil; {
			got, err := consumer.Fetch(100, jetstream.FetchMaxWait(time.Second))
			if err != nil {
				b.Error(err)
				return
			}
			var ms []jetstream.Msg
			for m := range got.Messages() {
				if start.IsZero() {
					start = time.Now()
				}
				if ms = append(ms, m); len(ms) == batch {
					work <- ms
					handed += len(ms)
					ms = nil
				}
			}
			if len(ms) > 0 {
				work <- ms
				handed += len(ms)
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		b.Fatal("the bare client did not end")
	}
	took := time.Since(start)
	stop()
	hands.Wait()
	f.must(f.js.Conn().Flush())
	return float64(n) / took.Seconds()
}

// applyBare inserts the keys of a batch and the effects of the new ones, in one transaction.
func applyBare(ctx context.Context, pool *pgxpool.Pool, ms []jetstream.Msg) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if len(ms) == 1 {
			key := ms[0].Headers().Get("Idempotency-Key")
			tag, err := tx.Exec(ctx, "insert into seen (key) values ($1) on conflict do nothing", key)
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			_, err = tx.Exec(ctx, "insert into effect values ($1, $2)", key, ms[0].Data())
			return err
		}
		keys, bodies := make([]string, len(ms)), make([][]byte, len(ms))
		for i, m := range ms {
			keys[i], bodies[i] = m.Headers().Get("Idempotency-Key"), m.Data()
		}
		_, err := tx.Exec(ctx, `with fresh as (insert into seen (key) select unnest($1::text[]) on conflict do nothing returning key)
			insert into effect select m.key, m.body from unnest($1::text[], $2::bytea[]) as m (key, body) join fresh using (key)`, keys, bodies)
		return err
	})
}

// ours consumes n messages through package consumer, and returns messages per second.
func (f *fixture) ours(b *testing.B, pool *pgxpool.Pool, n, batch int) float64 {
	var once sync.Once
	var start time.Time
	source, err := pawlnats.Open(b.Context(), f.js, f.stream, f.consumer, pawlnats.Config{Batch: max(100, 4*batch),
		// The first event is received.
		Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) { once.Do(func() { start = time.Now() }) }}})
	f.must(err)
	ended := through(b, pool, source, n, batch)
	return float64(n) / ended.Sub(start).Seconds()
}

// A heap delivers n messages from memory, which shows the rate without a broker.
type heap struct {
	mu     sync.Mutex
	prefix string
	left   int
	start  time.Time
}

func (h *heap) Receive(ctx context.Context, limit int) (ds []pawl.Delivery, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.start.IsZero() {
		h.start = time.Now()
	}
	for ; h.left > 0 && len(ds) < limit; h.left-- {
		ds = append(ds, pawl.Delivery{Key: fmt.Sprint(h.prefix, "-", h.left), Payload: make([]byte, 200), MessageID: "m", Handle: h, Receives: 1})
	}
	if len(ds) == 0 {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return ds, ctx.Err()
}

func (h *heap) Ack(context.Context, ...pawl.Receipt) error                           { return nil }
func (h *heap) Release(_ context.Context, _ time.Duration, _ ...pawl.Delivery) error { return nil }
func (h *heap) Info() pawl.SourceInfo                                                { return pawl.SourceInfo{ReceiveBatch: 400, AckBatch: 128} }

// through consumes n messages of a source, and returns the time of the last effect.
func through(b *testing.B, pool *pgxpool.Pool, source pawl.Source, n, batch int) time.Time {
	b.Helper()
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
	c, err := consumer.New(pool, consumer.Config{Name: "bench", Source: source, Handler: handler, Concurrency: benchHands, Retention: consumer.Retention{Forever: true},
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Kind == pawl.EventSucceeded && done.Add(int64(max(e.Count, 1))) == int64(n) {
				close(ended)
			}
			if e.Kind == pawl.EventError || e.Kind == pawl.EventRetryable {
				b.Log(e.Kind, e.Op, e.Err)
			}
		}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	running := make(chan error, 1)
	go func() { running <- c.Run(ctx) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		b.Fatalf("%d of %d", done.Load(), n)
	}
	at := time.Now()
	stop()
	if err := <-running; err != nil && !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
	return at
}

// BenchmarkSinkBesideABareClient compares a sink with a bare nats.go client that publishes the same
// messages, 100 in flight and one by one. Run it with -benchtime 20000x.
func BenchmarkSinkBesideABareClient(b *testing.B) {
	f := setup(b, options{stream: jetstream.StreamConfig{Duplicates: time.Second}})
	sink := f.sink(pawlnats.SinkConfig{})
	ms := make([]pawl.Message, b.N)
	for i := range ms {
		ms[i] = event(fmt.Sprint("e", i), make([]byte, 200))
	}
	rate := func(publish func(prefix string)) (best float64) {
		for round := range 3 {
			prefix := fmt.Sprint(round, "-", names.Add(1), "-")
			start := time.Now()
			publish(prefix)
			best = max(best, float64(b.N)/time.Since(start).Seconds())
		}
		return best
	}
	bare := rate(func(prefix string) {
		const inFlight = 100
		slots := make(chan struct{}, inFlight)
		var all sync.WaitGroup
		for i := range ms {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				m := nats.NewMsg(f.stream + ".events")
				m.Header.Set("Nats-Msg-Id", prefix+ms[i].ID)
				m.Data = ms[i].Payload
				f.publish(m)
			})
		}
		all.Wait()
	})
	named := func(m pawl.Message, prefix string) pawl.Message {
		headers := map[string]string{}
		for name, value := range m.Headers {
			headers[name] = value
		}
		m.ID = prefix + m.ID
		headers[pawl.HeaderEventID] = m.ID
		m.Headers = headers
		return m
	}
	ours := rate(func(prefix string) {
		for from := 0; from < len(ms); from += 100 {
			var batch []pawl.Message
			for _, m := range ms[from:min(from+100, len(ms))] {
				batch = append(batch, named(m, prefix))
			}
			if errs := sink.Publish(b.Context(), batch); errs != nil {
				b.Fatal(errs)
			}
		}
	})
	run := rate(func(prefix string) {
		var all []pawl.Message
		for _, m := range ms {
			all = append(all, named(m, prefix))
		}
		if n, err := sink.PublishBatch(b.Context(), all); n != len(all) || err != nil {
			b.Fatal(n, err)
		}
	})
	b.ReportMetric(ours, "ours/s")
	b.ReportMetric(bare, "bare/s")
	b.ReportMetric(ours/bare, "ratio")
	b.ReportMetric(run, "onebyone/s")
}
