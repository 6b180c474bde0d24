package job_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// bury lets all leases run out and sweeps, in one transaction: no heartbeat can come in between. It waits for claims that are under way,
// which lock their worker's row FOR KEY SHARE: a sweep passes such a worker by until the next time.
const bury = "select pg_advisory_xact_lock(1885435756, 1); select from pawl.worker for update; update pawl.worker set seen_at = now() - lease * 2; select pawl_v1.job_sweep('{k}')"

// Heartbeats carry a job through several leases, however long its handler takes.
func TestWorker_HeartbeatCarriesALongJob(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Lease = time.Second
	var calls atomic.Int32
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		calls.Add(1)
		var failed error
		if err := patience.Poll(ctx, func() (old bool) {
			failed = tx.QueryRow(ctx, "select clock_timestamp() - now() >= interval '2.5 seconds'").Scan(&old)
			return old || failed != nil
		}); err != nil || failed != nil {
			return errors.Join(err, failed)
		}
		return apply(ctx, tx, j)
	}
	c.enqueueMany(1, job.Request{MaxAttempts: 1})
	c.hire()
	c.hire() // its housekeeping looks for dead workers all the while
	c.untilDone()
	c.wantEffects(1)
	if calls.Load() != 1 {
		t.Errorf("the handler ran %d times", calls.Load())
	}
}

// A sweep takes nothing from a handler whose transaction is open, whatever the clocks say: it holds the row. The
// worker's next heartbeat revives it.
func TestWorker_OpenTransactionKeepsItsJob(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	entered, proceed := make(chan struct{}), make(chan struct{})
	c.concurrency = 1 // with a free slot it would claim, and learn of its burial before the next heartbeat
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		close(entered)
		<-proceed
		return apply(ctx, tx, j)
	}
	c.enqueueMany(1, job.Request{MaxAttempts: 1})
	c.hire()
	<-entered
	c.exec(bury)
	close(proceed)
	c.untilDone()
	c.wantEffects(1)
	c.wantCount("select count(*) from pawl.job", 0)
}

// A worker that was buried while its handler ran (its connection dead, so that the sweep took the job) ends that
// handler's context, loses its rows, registers again and goes on working. The job, taken over, takes effect once.
// Not parallel: the job is a suspect then, and would keep the other tests' handlers out.
func TestWorker_BuriedAliveStartsOver(t *testing.T) {
	c := setupCrew(t)
	c.config.Lease = time.Second
	entered, ended := make(chan uint32, 1), make(chan error, 1)
	var calls atomic.Int32
	var takenOver atomic.Bool
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if calls.Add(1) > 1 {
			takenOver.Store(takenOver.Load() || j.Crashes == 1)
			return apply(ctx, tx, j)
		}
		if err := apply(ctx, tx, j); err != nil {
			return err
		}
		entered <- tx.Conn().PgConn().PID()
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	}
	c.enqueueMany(1, job.Request{})
	c.hire()
	pid := <-entered
	_, err := c.pool.Exec(t.Context(), "select pg_terminate_backend($1, 10000)", pid)
	c.must(err)
	c.exec(bury)
	// The rival that takes it over is a stand-in for another process.
	c.register()
	c.exec("update pawl.job set available_at = now() where status = 'pending'")
	rival := c.claimUpTo(1)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context ended with %v", err)
	}
	for _, j := range rival { // else the buried worker was quicker
		takenOver.Store(j.Crashes == 1)
		c.must(pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
			return errors.Join(j.Hold(t.Context(), tx), apply(t.Context(), tx, j), j.Finish(t.Context(), tx))
		}))
	}
	c.untilDone()
	c.wantEffects(1)
	c.enqueueMany(3, job.Request{})
	c.untilDone()
	c.wantEffects(4)
	if !takenOver.Load() {
		t.Error("the sweep did not take the job")
	}
	if n := c.saw(pawl.EventError, "worker.lease_lost"); n != 1 {
		t.Errorf("%d lost leases were told of, want 1", n)
	}
}

// Two workers, and somebody who buries them again and again: sweeps at once are safe, and every job takes effect once.
// Not parallel: swept jobs run alone in the process, and would keep the other tests' handlers out.
func TestWorker_SweepsAtOnceAreSafe(t *testing.T) {
	c := setupCrew(t)
	c.config.Lease, c.config.MaxCrashes = time.Second, 1000
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if err := apply(ctx, tx, j); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "select pg_sleep(0.005 * random())")
		return err
	}
	c.enqueueMany(100, job.Request{MaxAttempts: 1000})
	c.hire()
	c.hire()
	left := func() (n int) {
		c.must(c.pool.QueryRow(t.Context(), "select count(*) from pawl.job").Scan(&n))
		return n
	}
	random := rand.New(rand.NewPCG(1, 2))
	patience.Until(t, "no job is left", func() bool {
		c.exec("update pawl.worker set seen_at = now() - lease * 2 where id % 2 = " + []string{"0", "1"}[random.IntN(2)] +
			"; select pawl_v1.job_sweep(null); update pawl.job set available_at = now() where status = 'pending'")
		return left() == 0
	})
	c.wantEffects(100)
}

// A job that was there when a process died runs with nothing beside it.
// Not parallel: it would keep the other tests' handlers out, and they it.
func TestWorker_SuspectsRunAlone(t *testing.T) {
	c := setupCrew(t)
	c.concurrency = 4
	var running, crowded, alone atomic.Int32
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		beside := running.Add(1) - 1
		defer running.Add(-1)
		if err := apply(ctx, tx, j); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "select pg_sleep(0.002)"); err != nil {
			return err
		}
		if j.Crashes > 0 {
			alone.Add(1)
			if beside > 0 || running.Load() > 1 {
				crowded.Add(1)
			}
		}
		return nil
	}
	c.enqueueMany(60, job.Request{})
	c.exec("update pawl.job set crashes = 1 where id % 3 = 0")
	c.hire()
	c.hire()
	c.untilDone()
	c.wantEffects(60)
	if crowded.Load() > 0 || alone.Load() != 20 {
		t.Errorf("%d suspects ran, %d of them not alone", alone.Load(), crowded.Load())
	}
}

// A handler that ignores its context does not keep a suspect, and everybody behind it, waiting for ever.
// Not parallel: the suspect would wait for the other tests' handlers too.
func TestWorker_SuspectsDoNotWaitForTheDeaf(t *testing.T) {
	c := setupCrew(t)
	c.concurrency, c.config.Timeout, c.abandon = 3, 100*time.Millisecond, 100*time.Millisecond
	entered, proceed := make(chan struct{}), make(chan struct{})
	defer close(proceed)
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if j.Attempt == 1 && j.Crashes == 0 {
			close(entered)
			<-proceed
		}
		return apply(ctx, tx, j)
	}
	c.enqueueMany(1, job.Request{})
	c.hire()
	<-entered
	c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('q', 'k', '', 1)")
	c.until("the suspect does not run", "select count(*) from effect where job = 2", 1)
}

// A sweep takes jobs of any queue back, and so does not say that they are of the worker's own.
func TestWorker_SweepNamesNoQueue(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Lease = time.Second // a session of that age may sweep
	_, err := c.pool.Exec(t.Context(), `with w as (insert into pawl.worker (name, lease, seen_at) values ('gone', '1 second', now() - interval '1 hour') returning id)
insert into pawl.job (queue, kind, payload, status, claimed_by) select 'elsewhere', 'k', '', 'processing', w.id from w`)
	c.must(err)
	c.hire()
	c.untilTrue("the sweep has taken it back", func() bool { return c.saw(pawl.EventStaleTakeover, "job.sweep") > 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Op == "job.sweep" && e.Scope != "" {
			t.Errorf("a sweep names queue %q", e.Scope)
		}
	}
}
