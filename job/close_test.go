package job_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// closes counts the calls of job_close on the connections of a pool.
type closes struct{ atomic.Int32 }

func (c *closes) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *closes) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *closes) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (c *closes) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	if strings.Contains(q.SQL, "job_close") {
		c.Add(1)
	}
}
func (c *closes) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// At the end of a transaction, job_close is called only if the transaction may have changed, the
// job was in a lane, or the queue has an archive.
func TestHandleTx_ClosesWhereItMust(t *testing.T) {
	t.Parallel()
	plain := func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1"); return err }
	for name, c := range map[string]struct {
		request job.Request
		archive bool
		do      func(context.Context, pgx.Tx) error
		closes  int32
	}{
		"a job":          {do: plain},
		"in a lane":      {request: job.Request{Lane: "l"}, do: plain, closes: 1},
		"in an archive":  {archive: true, do: plain, closes: 1},
		"its connection": {do: func(_ context.Context, tx pgx.Tx) error { tx.Conn(); return nil }, closes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var count closes
			config := b.pool.Config()
			config.ConnConfig.Tracer = &count
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			b.must(err)
			t.Cleanup(pool.Close)
			if c.archive {
				b.exec("select pawl_v1.queue_set('q', '{\"archive\": true}', 'ann', 'r')")
			}
			c.request.Queue, c.request.Kind = "q", "k"
			b.enqueue(c.request)
			handler := job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte]) error { return c.do(ctx, tx) })
			pawltest.Drain(t, pool, job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{handler}})
			b.wantCount("select count(*) from pawl.job", 0)
			if got := count.Load(); got != c.closes {
				t.Errorf("job_close was called %d times, want %d", got, c.closes)
			}
		})
	}
}
