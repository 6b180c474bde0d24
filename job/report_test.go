package job_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// A worker reports its queues and its handlers' durations. The database records its silence.
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

// A worker reports whether enqueues wake it, and a change with its next heartbeat.
func TestWorker_ReportsWakeups(t *testing.T) {
	t.Parallel()
	const says = "select count(*) from pawl.worker as w where w.report ->> 'wakeups' = "
	t.Run("on, cut, and on again", func(t *testing.T) {
		t.Parallel()
		c := setupCrew(t)
		c.hire()
		c.until("not on", says+"'on'", 1)
		c.exec("select pg_terminate_backend(l.pid, 10000) from pg_locks as l where l.classid = 1885435757 and l.database = (select d.oid from pg_database as d where d.datname = current_database())")
		c.until("not none", says+"'none'", 1)
		c.until("not on again", says+"'on'", 1)
	})
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		c := setupCrew(t)
		c.config.Presence.Off = true
		c.hire()
		c.until("not off", says+"'off'", 1)
	})
}

// A worker counts in events and its report how an idle queue found jobs: by a notification or by a
// poll. Jobs found by a busy queue count as neither.
func TestWorker_TellsHowItFoundJobs(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Poll = 2 * time.Second
	c.hire()
	three := job.Request{Queue: "q", Kind: "k"}
	polls := c.wakes("an enqueue", func() {
		// Each COMMIT may notify, so this is one.
		_, err := job.EnqueueMany(t.Context(), c.pool, []job.Request{three, three, three})
		c.must(err)
	}) - 1
	if woken, polled := c.saw(pawl.EventWoken, "job.claim"), c.saw(pawl.EventPolled, "job.claim"); woken != 1 || polled != polls {
		t.Errorf("an enqueue: woken %d, polled %d, want 1 and %d", woken, polled, polls)
	}
	c.untilAnnounced(1)
	c.enqueueMany(1, job.Request{StartIn: time.Second})
	c.untilDone()
	if woken, polled := c.saw(pawl.EventWoken, "job.claim"), c.saw(pawl.EventPolled, "job.claim"); woken != 1 || polled != polls+1 {
		t.Errorf("a job whose time comes: woken %d, polled %d, want 1 and %d", woken, polled, polls+1)
	}
	c.until("not reported", fmt.Sprintf("select count(*) from pawl.worker as w where w.report -> 'woken' = '1' and w.report -> 'polled' = '%d'", polls+1), 1)
}
