package job_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/job"
)

// A worker says in the database what it serves, and what its handlers take, those that fail as well; the database sees for itself how
// long it was silent.
func TestWorker_Reports(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.ShutdownTimeout = 7 * time.Second
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error { return apply(ctx, tx, j) }
	c.enqueueMany(3, job.Request{})
	c.hire()
	c.untilDone()
	c.until("the worker has reported", `select count(*) from pawl.worker as w
 where w.report -> 'queues' = '["q"]'
   and w.report -> 'drain_ms' = '7000'
   and (w.report #>> '{handlers,k,timeout_ms}')::int > 0
   and w.silence between interval '0.1 ms' and interval '1 hour'`, 1)
}
