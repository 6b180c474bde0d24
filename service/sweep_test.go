package service_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/service"
)

const parcels = `create table parcel (id int primary key, status text not null default 'pending', claimed_at timestamptz, completed_at timestamptz,
  last_error text, attempt_count int not null default 0, created_at timestamptz not null default now());
insert into parcel (id) select g from generate_series(1, 9) as g`

func nothing(context.Context, pgx.Tx) (any, error) { return nil, nil }

// A consumer and a worker can claim rows from their first message to the end of their last handler,
// because the sweeper starts before them and stops after them.
func TestSweeper_StartsBeforeAndStopsAfterClaims(t *testing.T) {
	t.Parallel()
	b := setup(t, parcels, "update parcel set created_at = now() - interval '1 hour' where id = 9")
	pool := b.pool(b.url, 20)
	rows, err := guard.New(pool, guard.Table{Name: "parcel", CreatedAt: "created_at"})
	b.must(err)
	app := b.app(pool, service.Config{ShutdownTimeout: 5 * time.Minute})
	driven := make(chan context.Context, 1)
	app.Sweeper(rows, guard.SweeperConfig{Every: 10 * time.Millisecond}, func(ctx context.Context, _ string) error {
		driven <- ctx
		<-ctx.Done() // the longest work
		return ctx.Err()
	})
	claim := func(ctx context.Context, id int) error {
		c, err := rows.Claim(ctx, id)
		if err != nil {
			t.Errorf("row %d: %v", id, err)
			return err
		}
		return c.Commit(ctx, nothing)
	}
	source := &pawltest.Source{}
	source.Send(pawl.Delivery{Key: "1"})
	app.Consumer(consumer.Config{Name: "parcels", Source: source, Handler: consumer.Trigger(func(ctx context.Context, _ consumer.Message[[]byte]) error { return claim(ctx, 1) })})
	stopping, working := make(chan struct{}), make(chan struct{})
	app.Worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.Handle("k", func(ctx context.Context, _ job.Task[[]byte]) error {
		close(working)
		<-stopping
		if sweeping := <-driven; sweeping.Err() != nil {
			t.Error("the sweeper was stopped before a handler that claims")
		}
		return claim(ctx, 2)
	})}})
	app.Add(service.Part{Name: "bell", Run: func(ctx context.Context) error {
		<-ctx.Done()
		close(stopping)
		return nil
	}})
	r := b.run(app)
	b.until("the message is acknowledged", func() bool { return source.Open() == 0 })
	_, err = job.Enqueue(t.Context(), b.eyes, job.Request{Queue: "q", Kind: "k"})
	b.must(err)
	<-working
	b.until("the sweeper drives the old row", func() bool { return len(driven) == 1 })
	b.must(r.end())
	if n := b.count("select count(*) from parcel where status = 'completed'"); n != 2 {
		t.Errorf("%d rows are completed", n)
	}
	if _, err := rows.Claim(t.Context(), 3); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("after the end: %v", err)
	}
}

// Events of a sweeper reach the hooks of the app and its own.
func TestSweeper_Hooks(t *testing.T) {
	t.Parallel()
	b := setup(t, parcels, "update parcel set status = 'error', attempt_count = 25, last_error = 'no' where id = 7")
	pool := b.pool(b.url, 20)
	rows, err := guard.New(pool, guard.Table{Name: "parcel", CreatedAt: "created_at"})
	b.must(err)
	var all, own pawl.Counters
	app := b.app(pool, service.Config{Hooks: all.Hooks()})
	app.Sweeper(rows, guard.SweeperConfig{Every: 10 * time.Millisecond, Hooks: own.Hooks()}, func(context.Context, string) error { return nil })
	r := b.run(app)
	b.until("both hear of the used-up row", func() bool { return all.Count(pawl.EventFailed) == 1 && own.Count(pawl.EventFailed) == 1 })
	b.must(r.end())
}

// Run refuses a sweeper that cannot work, with its name, and counts its connection.
func TestSweeper_IsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t, parcels)
	pool := b.pool(b.url, 1)
	rows, err := guard.New(pool, guard.Table{Name: "parcel"})
	b.must(err)
	drive := func(context.Context, string) error { return nil }
	for want, add := range map[string]func(*service.App){
		"sweeper: ":        func(a *service.App) { a.Sweeper(nil, guard.SweeperConfig{}, drive) },
		"sweeper parcel: ": func(a *service.App) { a.Sweeper(rows, guard.SweeperConfig{}, nil) },
		"sweeper parcel 1": func(a *service.App) {
			a.Sweeper(rows, guard.SweeperConfig{}, drive)
			a.Schedules(schedule.Config{})
		},
	} {
		app := b.app(pool, service.Config{})
		add(app)
		if err := app.Run(t.Context()); !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
