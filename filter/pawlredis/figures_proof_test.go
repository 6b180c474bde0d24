//go:build proof

package pawlredis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/filter/pawlredis"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// A stream delivers its deliveries in order, those that are released last, and counts
// acknowledgements.
type stream struct {
	mu    sync.Mutex
	ds    []pawl.Delivery
	acked atomic.Int32
	ended chan struct{}
}

func (s *stream) Info() pawl.SourceInfo { return pawl.SourceInfo{ReceiveBatch: 100, AckBatch: 100} }

func (s *stream) Receive(ctx context.Context, most int) ([]pawl.Delivery, error) {
	for ctx.Err() == nil {
		s.mu.Lock()
		batch := s.ds[:min(most, len(s.ds))]
		s.ds = s.ds[len(batch):]
		s.mu.Unlock()
		if len(batch) > 0 {
			return batch, nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil, ctx.Err()
}

func (s *stream) Ack(_ context.Context, rs ...pawl.Receipt) error {
	if s.acked.Add(int32(len(rs))) == streamLength {
		close(s.ended)
	}
	return nil
}

func (s *stream) Release(_ context.Context, _ time.Duration, ds ...pawl.Delivery) error {
	s.mu.Lock()
	s.ds = append(s.ds, ds...)
	s.mu.Unlock()
	return nil
}

const (
	streamLength = 20_000
	streamKeys   = streamLength / 10 // 90 % are duplicates
)

// duplicates returns a stream in which each key comes ten times, within some thousand deliveries.
func duplicates() *stream {
	random := rand.New(rand.NewPCG(1, 0))
	s := &stream{ended: make(chan struct{})}
	const window = 500 // keys that come at the same time
	for from := 0; from < streamKeys; from += window {
		for range 10 {
			for _, n := range random.Perm(window) {
				key := fmt.Sprintf("key-%d", from+n)
				s.ds = append(s.ds, pawl.Delivery{Key: key, MessageID: fmt.Sprint(len(s.ds)), Payload: []byte(key), Handle: len(s.ds)})
			}
		}
	}
	return s
}

// The figures of docs/guides/filter.md: the same stream with and without the filter.
func TestFigures(t *testing.T) {
	s, _ := startRedis(t)
	single := consumer.Handler(consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		_, err := tx.Exec(ctx, "insert into effect values ($1)", m.Key)
		return err
	}))
	many := consumer.Handler(consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []consumer.Message[[]byte]) error {
		keys := make([]string, len(ms))
		for n, m := range ms {
			keys[n] = m.Key
		}
		_, err := tx.Exec(ctx, "insert into effect select * from unnest($1::text[])", keys)
		return err
	}))
	for _, c := range []struct {
		name    string
		handler consumer.Handler
		filter  bool
	}{
		{"HandleTx", single, false}, {"HandleTx, filter", single, true}, {"HandleManyTx", many, false}, {"HandleManyTx, filter", many, true},
		{"HandleTx", single, false}, {"HandleTx, filter", single, true}, {"HandleManyTx", many, false}, {"HandleManyTx, filter", many, true},
	} {
		config, err := pgxpool.ParseConfig(pawltest.URL(t, "create table effect (key text not null)"))
		if err != nil {
			t.Fatal(err)
		}
		config.MaxConns = 12
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		var filter consumer.Filter
		if c.filter {
			filter = open(t, s, pawlredis.Config{Prefix: fmt.Sprint(rand.Uint64())})
		}
		measured(t, pool, c.name, c.handler, filter)
	}
}

func measured(t *testing.T, pool *pgxpool.Pool, name string, handler consumer.Handler, filter consumer.Filter) {
	t.Helper()
	source, counters := duplicates(), &pawl.Counters{}
	c, err := consumer.New(pool, consumer.Config{Name: "figures", Source: source, Handler: handler, Filter: filter, Hooks: counters.Hooks(), Concurrency: 8, RetryConcurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	before := readings(t, pool)
	go func() { done <- c.Run(ctx) }()
	<-c.Ready()
	began := time.Now()
	<-source.ended
	took := time.Since(began)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var effects int
	if err := pool.QueryRow(t.Context(), "select count(*) from effect").Scan(&effects); err != nil || effects != streamKeys {
		t.Errorf("%s: %d effects, want %d: %v", name, effects, streamKeys, err)
	}
	after := readings(t, pool)
	t.Logf("figures: %-20s %6.0f deliveries/s, %5d transactions, %4.0f MB of WAL, %v", name+":", streamLength/took.Seconds(), after.transactions-before.transactions,
		float64(after.wal-before.wal)/1e6, counters)
}

type reading struct{ transactions, wal int64 }

// readings returns what the database counted. Its sessions report when they are idle, or end.
func readings(t *testing.T, pool *pgxpool.Pool) (r reading) {
	t.Helper()
	pool.Reset()
	last := reading{-1, -1}
	patience.Until(t, "the counts stand still", func() bool {
		r, last = last, r
		err := pool.QueryRow(t.Context(), "select (select d.xact_commit + d.xact_rollback from pg_stat_database as d where d.datname = current_database()), pg_current_wal_insert_lsn() - '0/0'").
			Scan(&r.transactions, &r.wal)
		if err != nil {
			t.Fatal(err)
		}
		pool.Reset()
		time.Sleep(200 * time.Millisecond)
		return r.transactions-last.transactions <= 3
	})
	return r
}
