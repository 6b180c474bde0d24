//go:build proof

package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
)

// A delivery that stops each process that handles it, and never returns, is a dead letter after a
// bounded number of processes. The delivery beside it takes effect. Not parallel: the processes
// share one isolator.
func TestStop_ADeliveryThatStopsEachProcessEnds(t *testing.T) {
	for name, set := range map[string]func(*form, func(context.Context, pawl.Delivery)){
		"tx": func(f *form, hang func(context.Context, pawl.Delivery)) {
			f.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
				if hang(ctx, d); d.Key == "order-1" {
					return context.Canceled
				}
				return apply(ctx, tx, d)
			}
		},
		"trigger": func(f *form, hang func(context.Context, pawl.Delivery)) {
			f.handle = nil
			f.trigger = func(ctx context.Context, d pawl.Delivery) error {
				if hang(ctx, d); d.Key == "order-1" {
					return context.Canceled
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.config.ShutdownTimeout, b.source.Invisibility = 50*time.Millisecond, time.Hour
			b.form.Timeout = time.Second // the isolator counts it 5 s longer
			called, let := make(chan pawl.Delivery), make(chan struct{})
			t.Cleanup(func() { close(let) })
			set(&b.form, func(_ context.Context, d pawl.Delivery) {
				if d.Key != "order-1" {
					return
				}
				called <- d
				<-let
			})
			d := order(1)
			d.SentAt = time.Now()
			b.source.Send(d, order(2))
			dead := func() bool { return b.count("select count(*) from pawl.job where status = 'dead_letter'") == 1 }
			processes := 0
			for ; !dead(); processes++ {
				if processes > 20 {
					t.Fatalf("%d processes were stopped, and the delivery goes on", processes)
				}
				b.pool = poolLike(t, b.pool) // each process has its own
				stop := b.start()
				var handled *pawl.Delivery
				b.until("it is handled again, or dead", func() bool {
					select {
					case d := <-called:
						handled = &d
					default:
					}
					return handled != nil || dead()
				})
				stop()
				// its process exits, and the handler never returns
				b.count("select count(pg_terminate_backend(a.pid)) from pg_stat_activity as a where a.datname = current_database() and a.state like 'idle in transaction%'")
				if handled != nil && handled.Handle != nil {
					_ = b.source.Release(t.Context(), 0, *handled)
				}
			}
			t.Logf("a dead letter after %d processes", processes)
			if open := b.source.Open(); open != 0 {
				t.Errorf("%d messages open", open)
			}
			if name == "tx" {
				b.wantEffects(1)
			}
		})
	}
}

func poolLike(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	another, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	return another
}
