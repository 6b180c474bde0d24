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

// bury expires all leases and sweeps, in one transaction, before the next heartbeat. It waits for
// claims in flight: they lock their worker's row FOR KEY SHARE, and a sweep skips such workers.
const bury = "select pg_advisory_xact_lock(1885435756, 1); select from pawl.worker for update; update pawl.worker set seen_at = now() - lease * 2; select pawl_v1.job_sweep('{k}')"

// Heartbeats keep a job while its handler runs, longer than the lease. The lease is long, since a
// heartbeat that stalls for it loses the job, as it should.
func TestWorker_HeartbeatCarriesALongJob(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Lease = 20 * time.Second
	var calls atomic.Int32
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		calls.Add(1)
		var failed error
		if err := patience.Poll(ctx, func() (old bool) {
			failed = tx.QueryRow(ctx, "select clock_timestamp() - now() >= interval '21 seconds'").Scan(&old)
			return old || failed != nil
		}); err != nil || failed != nil {
			return errors.Join(err, failed)
		}
		return apply(ctx, tx, j)
	}
	c.enqueueMany(1, job.Request{MaxAttempts: 1})
	c.hire()
	c.hire() // its housekeeping looks for dead workers meanwhile
	c.untilDone()
	c.wantEffects(1)
	if calls.Load() != 1 {
		t.Errorf("the handler ran %d times", calls.Load())
	}
}

// A sweep skips a job held by an open transaction. The worker's next heartbeat revives it.
func TestWorker_OpenTransactionKeepsItsJob(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	entered, proceed := make(chan struct{}), make(chan struct{})
	// With a free slot it would claim, and notice the sweep before the next heartbeat.
	c.concurrency = 1
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

// A worker is swept while its handler runs on a dead connection. It cancels that handler's context,
// loses its rows, registers again and continues. The job is taken over and takes effect once. The
// test is not parallel, because the job is then a suspect and would keep other tests' handlers out.
func TestWorker_SweptWorkerRegistersAgain(t *testing.T) {
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
	// The rival stands for another process that claims the job.
	c.register()
	c.exec("update pawl.job set available_at = now() where status = 'pending'")
	rival := c.claimUpTo(1)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context ended with %v", err)
	}
	for _, j := range rival { // else the swept worker was faster
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
		t.Errorf("%d events of lost leases, want 1", n)
	}
}

// Two workers are swept again and again, and every job takes effect once. Not parallel: swept jobs
// run alone in the process and would keep other tests' handlers out.
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

// A job that was running when a process died runs alone. The test is not parallel, because suspects
// and other tests' handlers would wait for each other.
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

// A handler that ignores its context does not keep a suspect, and the work behind it, waiting
// forever. The test is not parallel, because the suspect would also wait for other tests' handlers.
func TestWorker_SuspectsDoNotWaitForAHungHandler(t *testing.T) {
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

// A sweep requeues jobs of any queue, so its event names no queue.
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
