package standbytest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/migrate"
)

// A flood is a source that delivers the same message n times.
type flood struct {
	left, acked atomic.Int64
	done        chan struct{}
	n           int64
}

func (f *flood) Receive(ctx context.Context, limit int) (ds []pawl.Delivery, _ error) {
	for range limit {
		if f.left.Add(-1) < 0 {
			break
		}
		ds = append(ds, pawl.Delivery{Key: fmt.Sprint(f.left.Load()), MessageID: "m", Payload: []byte("x"), Handle: 1})
	}
	if len(ds) == 0 {
		patience.Elapse(10 * time.Millisecond)
	}
	return ds, ctx.Err()
}

func (f *flood) Info() pawl.SourceInfo { return pawl.SourceInfo{} }

func (f *flood) Ack(_ context.Context, rs ...pawl.Receipt) error {
	if f.acked.Add(int64(len(rs))) == f.n {
		close(f.done)
	}
	return nil
}

func (f *flood) Release(_ context.Context, _ time.Duration, ds ...pawl.Delivery) error {
	f.left.Add(int64(len(ds)))
	return nil
}

// BenchmarkDuplicates measures duplicates with a consumer of 8 handlers, without and with a
// synchronous standby.
//
//	go test ./internal/testbed/standbytest -run xxx -bench Duplicates -benchtime 5000x
func BenchmarkDuplicates(b *testing.B) {
	p := newServers(b, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := migrate.Up(ctx, conn, nil)
		return err
	})
	for _, names := range []string{"", "pair"} {
		b.Run(map[string]string{"": "no standby", "pair": "synchronous standby"}[names], func(b *testing.B) {
			p.Synchronous(names)
			p.Until("select " + map[string]string{"": "not "}[names] + "exists (select from pg_stat_replication as r where r.sync_state = 'sync')")
			config, err := pgxpool.ParseConfig(p.URL())
			if err != nil {
				b.Fatal(err)
			}
			config.MaxConns = 16
			pawl.Watch(config.ConnConfig, pawl.Watching{})
			pool, err := pgxpool.NewWithConfig(b.Context(), config)
			if err != nil {
				b.Fatal(err)
			}
			defer pool.Close()
			print := pawl.FingerprintOf([]byte("x"))
			if _, err := pool.Exec(b.Context(), `insert into pawl.inbox (consumer, key, hash, processed_at)
select 'orders', g::text, $1, clock_timestamp() from generate_series(0, $2::int) as g on conflict do nothing`, print[:], b.N); err != nil {
				b.Fatal(err)
			}
			source := &flood{done: make(chan struct{}), n: int64(b.N)}
			source.left.Store(int64(b.N))
			f, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Concurrency: 8, Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}},
				Fingerprint: func(pawl.Delivery) (pawl.Fingerprint, error) { return print, nil },
				Handler:     consumer.HandleTx(func(context.Context, pgx.Tx, consumer.Message[[]byte]) error { return fmt.Errorf("fresh") })})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			b.ResetTimer()
			go func() { ended <- f.Run(ctx) }()
			<-source.done
			b.StopTimer()
			cancel()
			<-ended
		})
	}
}
