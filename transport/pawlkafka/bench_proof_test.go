//go:build proof

package pawlkafka_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

var throughput = flag.Int("throughput", 0, "number of records for the comparison with a bare client; 0 skips it. 20000 gives stable figures on a quiet machine")

// throughputTables are the handlers' table and the bare client's table for deduplication.
const throughputTables = `
create table effect (id text not null, cents int not null);
create table seen (id text primary key, at timestamptz not null default now())`

// atOnce is the number of concurrent handlers, with and without Pawl.
const atOnce = 16

// A bare client inserts the effect and a deduplication row in one transaction. A consumer reaches
// 0.7 of its rate one by one, and 0.5 in batches of 100, in one run on one broker and database. It
// also reaches 0.7 of its own rate from a source in memory, which shows the limit of package
// consumer.
func TestThroughput_BesideABareClient(t *testing.T) {
	if *throughput == 0 {
		t.Skip("needs a quiet machine and -throughput 20000")
	}
	at := addr(t)
	for _, c := range []struct {
		name  string
		batch int
		bar   float64
	}{{"one by one", 1, 0.7}, {"batches of 100", 100, 0.5}} {
		t.Run(c.name, func(t *testing.T) {
			topic := createTopic(t, at, atOnce, nil)
			fill(t, at, topic, *throughput)
			var bare, ours, memory float64
			for range 3 { // best of three, because the machine is shared
				bare = max(bare, bareRate(t, at, topic, c.batch))
				ours = max(ours, consumerRate(t, at, topic, c.batch))
				memory = max(memory, rateOf(t, &memorySource{all: *throughput}, c.batch))
			}
			t.Logf("%s: bare %.0f/s, Pawl %.0f/s, ratio %.2f; from memory %.0f/s, ratio %.2f", c.name, bare, ours, ours/bare, memory, ours/memory)
			if ours < 0.7*memory {
				t.Errorf("the ratio to a source in memory is %.2f", ours/memory)
			}
			if ours < c.bar*bare {
				t.Errorf("the ratio is %.2f, the bar %.2f", ours/bare, c.bar)
			}
		})
	}
}

// fill sends n records without a record key, spread over the partitions.
func fill(t *testing.T, at, topic string, n int) {
	t.Helper()
	c := client(t, at, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	for i := range n {
		c.Produce(context.Background(), &kgo.Record{Topic: topic, Value: []byte(`{"id":"order","cents":7}`),
			Headers: []kgo.RecordHeader{{Key: pawlkafka.DefaultKeyHeader, Value: fmt.Append(nil, "order-", i)}}}, nil)
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func throughputPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pawltest.URL(t, throughputTables))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 2*atOnce + 4
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// bareRate consumes the topic with a plain client, which marks records after their transactions.
func bareRate(t *testing.T, at, topic string, batch int) float64 {
	t.Helper()
	pool := throughputPool(t)
	c := client(t, at, kgo.ConsumerGroup(unique(t)), kgo.ConsumeTopics(topic), kgo.AutoCommitMarks(), kgo.AutoCommitInterval(100*time.Millisecond))
	work := make(chan []*kgo.Record)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for rs := range work {
				if err := bareApply(context.Background(), pool, rs); err != nil {
					t.Error(err)
				}
				c.MarkCommitRecords(rs...)
			}
		})
	}
	var begun time.Time
	for left := *throughput; left > 0; {
		fetches := c.PollRecords(t.Context(), 1000)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		if begun.IsZero() && !fetches.Empty() {
			begun = time.Now()
		}
		rs := fetches.Records()
		left -= len(rs)
		for len(rs) > 0 {
			n := min(batch, len(rs))
			work <- rs[:n]
			rs = rs[n:]
		}
	}
	close(work)
	workers.Wait()
	allEffects(t, pool)
	return float64(*throughput) / time.Since(begun).Seconds()
}

func bareApply(ctx context.Context, pool *pgxpool.Pool, rs []*kgo.Record) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		ids := make([]string, len(rs))
		for i, r := range rs {
			ids[i] = header(r, pawlkafka.DefaultKeyHeader)
		}
		rows, err := tx.Query(ctx, "insert into seen (id) select unnest($1::text[]) on conflict do nothing returning id", ids)
		if err != nil {
			return err
		}
		fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "insert into effect (id, cents) select unnest($1::text[]), 7", fresh)
		return err
	})
}

func consumerRate(t *testing.T, at, topic string, batch int) float64 {
	t.Helper()
	source, err := pawlkafka.Open(t.Context(), quick(at), unique(t), []string{topic}, pawlkafka.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return rateOf(t, source, batch)
}

func rateOf(t *testing.T, source pawl.Source, batch int) float64 {
	t.Helper()
	pool := throughputPool(t)
	var begun time.Time
	var once sync.Once
	fresh := make(chan struct{}, *throughput)
	var handler consumer.Handler = consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		once.Do(func() { begun = time.Now() })
		_, err := tx.Exec(ctx, "insert into effect (id, cents) values ($1, 7)", m.Key)
		return err
	})
	if batch > 1 {
		handler = consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []consumer.Message[[]byte]) error {
			once.Do(func() { begun = time.Now() })
			ids := make([]string, len(ms))
			for i, m := range ms {
				ids[i] = m.Key
			}
			_, err := tx.Exec(ctx, "insert into effect (id, cents) select unnest($1::text[]), 7", ids)
			return err
		}).With(consumer.ManyTxPolicy{BatchSize: batch})
	}
	c, err := consumer.New(pool, consumer.Config{Name: "throughput", Source: source, Handler: handler, Concurrency: atOnce, RetryConcurrency: 1,
		Retention: consumer.Retention{Forever: true},
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Kind == pawl.EventSucceeded {
				for range max(e.Count, 1) {
					fresh <- struct{}{}
				}
			}
		}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for range *throughput {
		<-fresh
	}
	took := time.Since(begun)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	allEffects(t, pool)
	return float64(*throughput) / took.Seconds()
}

// allEffects checks that each record took effect exactly once; otherwise the rate is meaningless.
func allEffects(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var all, distinct int
	if err := pool.QueryRow(context.Background(), "select count(*), count(distinct id) from effect").Scan(&all, &distinct); err != nil {
		t.Fatal(err)
	}
	if all != *throughput || distinct != all {
		t.Errorf("%d effects, %d different, of %d records", all, distinct, *throughput)
	}
}

// A memorySource generates its deliveries in memory.
type memorySource struct{ next, all int }

func (m *memorySource) Receive(ctx context.Context, limit int) (ds []pawl.Delivery, err error) {
	if m.next == m.all {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for ; len(ds) < limit && m.next < m.all; m.next++ {
		ds = append(ds, pawl.Delivery{Key: fmt.Sprint("order-", m.next), MessageID: fmt.Sprint(m.next), Payload: []byte(`{"id":"order","cents":7}`), Handle: m.next})
	}
	return ds, nil
}

func (m *memorySource) Ack(context.Context, ...pawl.Receipt) error                     { return nil }
func (m *memorySource) Release(context.Context, time.Duration, ...pawl.Delivery) error { return nil }
func (m *memorySource) Info() pawl.SourceInfo {
	return pawl.SourceInfo{ReceiveBatch: 100, AckBatch: 500}
}
