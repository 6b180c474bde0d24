package outagetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/schema"
)

// If row level security is enabled during operation, it hides rows without an error. A worker and a
// keeper report it.
func TestHidden_IsReported(t *testing.T) {
	t.Parallel()
	work := func(context.Context, job.Task[[]byte]) error { return nil }
	for name, c := range map[string]struct {
		table, op string
		run       func(ctx context.Context, t *testing.T, pool *pgxpool.Pool, hooks pawl.Hooks) (ready <-chan struct{}, run func(context.Context) error)
	}{
		"jobs":  {"pawl.job", "worker.heartbeat", worker(work)},
		"lanes": {"pawl.lane", "worker.heartbeat", worker(work)},
		"schedules": {"pawl.schedule", "schedule.tick", func(_ context.Context, t *testing.T, pool *pgxpool.Pool, hooks pawl.Hooks) (<-chan struct{}, func(context.Context) error) {
			k, err := schedule.NewKeeper(pool, schedule.Config{Poll: 50 * time.Millisecond, Hooks: hooks,
				Schedules: []schedule.Schedule{{Name: "each second", Plan: schedule.Every(time.Second), Queue: "q", Kind: "k"}}})
			if err != nil {
				t.Fatal(err)
			}
			return k.Ready(), k.Run
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pawltest.URL(t)
			owner, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = owner.Close(context.Background()) })
			if _, err := owner.Exec(t.Context(), schema.Roles()); err != nil {
				t.Fatal(err)
			}
			told := make(chan error, 100)
			hooks := pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
				if e.Kind == pawl.EventError && e.Op == c.op {
					select {
					case told <- e.Err:
					default:
					}
				}
			}}
			ready, run := c.run(t.Context(), t, application(t, url), hooks)
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- run(ctx) }()
			t.Cleanup(func() { stop(); <-ended })
			<-ready
			if _, err := owner.Exec(t.Context(), "alter table "+c.table+" enable row level security"); err != nil {
				t.Fatal(err)
			}
			patience.Until(t, "a word of the hidden rows", func() bool {
				select {
				case err := <-told:
					return strings.Contains(err.Error(), "row level security hides the rows of "+c.table)
				default:
					return false
				}
			})
		})
	}
}

func worker(work func(context.Context, job.Task[[]byte]) error) func(context.Context, *testing.T, *pgxpool.Pool, pawl.Hooks) (<-chan struct{}, func(context.Context) error) {
	return func(_ context.Context, t *testing.T, pool *pgxpool.Pool, hooks pawl.Hooks) (<-chan struct{}, func(context.Context) error) {
		w, err := job.NewWorker(pool, job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.Handle("k", work)}, Hooks: hooks})
		if err != nil {
			t.Fatal(err)
		}
		return w.Ready(), w.Run
	}
}

// application returns a pool whose sessions have an application's privileges.
func application(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set role pawl_app")
		return err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
