package outagetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// A worker that lost its session registers a new one, continues and stops, although another session
// has locked its job's row or its own row. The lock lasts longer than the test.
func TestWorker_LeavesWhileRowsAreLocked(t *testing.T) {
	t.Parallel()
	for name, locked := range map[string]string{
		"the job":    "select from pawl.job as j where j.kind = 'k' for update",
		"the worker": "select from pawl.worker for update",
	} {
		for _, form := range []string{"tx", "simple", "batch"} {
			t.Run(name+", "+form, func(t *testing.T) {
				t.Parallel()
				b := setup(t, nil, "")
				var calls atomic.Int32
				entered, goOn := make(chan struct{}, 1), make(chan struct{})
				wait := func() {
					if calls.Add(1) == 1 {
						entered <- struct{}{}
						<-goOn
					}
				}
				handlers := map[string]job.Handler{
					"simple": job.Handle("k", func(context.Context, job.Task[[]byte]) error { wait(); return nil }),
					"tx":     job.HandleTx("k", func(_ context.Context, _ pgx.Tx, _ job.Task[[]byte]) error { wait(); return nil }),
					"batch":  job.HandleManyTx("k", func(_ context.Context, _ pgx.Tx, _ []job.Task[[]byte]) error { wait(); return nil }),
				}
				other := job.Handle("other", func(context.Context, job.Task[[]byte]) error { return nil })
				w, err := job.NewWorker(b.pool(8, nil), job.Config{Queues: []job.Queue{{Name: "q"}}, Hooks: quiet, Lease: 5 * time.Second,
					ShutdownTimeout: 100 * time.Millisecond, Backoff: fast, Handlers: []job.Handler{handlers[form], other}})
				b.must(err)
				ctx, stop := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- w.Run(ctx) }()
				defer stop()
				b.exec("select pawl_v1.job_enqueue('q', 'k', '')")
				patience.Receive(t, "the handler runs", entered)
				// Its transaction has locked the row; end its session so that another session can
				// lock the row.
				if form != "simple" && name == "the job" {
					b.exec("select pg_terminate_backend(a.pid) from pg_stat_activity as a where a.state = 'idle in transaction'")
				}
				holder, err := pgx.Connect(t.Context(), b.server.URL("postgres"))
				b.must(err)
				defer holder.Close(context.Background())
				for _, statement := range []string{"begin", locked} {
					_, err := holder.Exec(t.Context(), statement)
					b.must(err)
				}
				patience.Until(t, "the session is lost", func() bool {
					// Delete the worker's row, as a sweep does with a dead worker. In one of the
					// cases the row is locked.
					if name == "the worker" {
						return b.count("select count(*) from pg_locks as l where not l.granted") > 0
					}
					b.exec("delete from pawl.worker")
					return true
				})
				close(goOn)
				if name == "the job" {
					b.exec("select pawl_v1.job_enqueue('q', 'other', '')")
					b.until("another job is done by a new session", "select count(*) from pawl.job as j where j.kind = 'other'", 0)
				}
				stop()
				b.must(patience.Receive(t, "the worker has stopped", ended))
			})
		}
	}
}
