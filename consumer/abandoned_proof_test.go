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
// share one isolator, which lets a hung handler go 5 s after its Timeout.
func TestStop_ADeliveryThatStopsEachProcessEnds(t *testing.T) {
	b := setup(t)
	b.config.ShutdownTimeout, b.source.Invisibility = 50*time.Millisecond, time.Hour
	b.form.Timeout, b.form.MaxCrashes = 10*time.Second, 1
	called, never := make(chan pawl.Delivery), make(chan struct{})
	t.Cleanup(func() { close(never) })
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if d.Key != order(1).Key {
			return apply(ctx, tx, d)
		}
		called <- d
		<-never
		return ctx.Err()
	}
	d := order(1)
	d.SentAt = time.Now()
	b.source.Send(d, order(2))
	dead := func() bool { return b.count("select count(*) from pawl.job where status = 'dead_letter'") == 1 }
	processes := 0
	for ; !dead(); processes++ {
		if processes > 10 {
			t.Fatalf("%d processes were stopped, and the delivery goes on", processes)
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), b.pool.Config()) // each process has its own
		if err != nil {
			t.Fatal(err)
		}
		b.pool = pool
		stop := b.start()
		var handled pawl.Delivery
		b.until("it is handled again, or dead", func() bool {
			select {
			case handled = <-called:
				return true
			default:
				return dead()
			}
		})
		stop()
		// its process exits, and the handler never returns
		b.count("select count(pg_terminate_backend(a.pid)) from pg_stat_activity as a where a.datname = current_database() and a.state like 'idle in transaction%'")
		if handled.Handle != nil {
			_ = b.source.Release(t.Context(), 0, handled)
		}
	}
	t.Logf("a dead letter after %d processes", processes)
	if open := b.source.Open(); open != 0 {
		t.Errorf("%d messages open", open)
	}
	b.wantEffects(1)
}
