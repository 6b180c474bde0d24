package job_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
)

// A stopping worker lets running handlers finish, starts no more, and leaves no worker row.
func TestWorker_StopFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency = 2
	entered, proceed := make(chan struct{}, 5), make(chan struct{})
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		entered <- struct{}{}
		<-proceed
		return apply(ctx, tx, j)
	}
	c.enqueueMany(5, job.Request{})
	stop := c.hire()
	<-entered
	<-entered
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	close(proceed)
	<-stopped
	c.wantCount("select count(*) from effect", 5-len(c.pendingUncharged()))
	c.wantCount("select count(*) from pawl.job where status <> 'pending'", 0)
	c.wantCount("select count(*) from pawl.worker", 0)
}

// pendingUncharged returns the ids of pending jobs and checks that none was charged.
func (c *crew) pendingUncharged() []int64 {
	c.Helper()
	c.wantCount("select count(*) from pawl.job where status = 'pending' and (attempts > 0 or crashes > 0)", 0)
	rows, err := c.pool.Query(c.Context(), "select id from pawl.job where status = 'pending'")
	c.must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	c.must(err)
	return ids
}

// Jobs that do not finish within ShutdownTimeout are cancelled and released at once, uncharged. Run
// does not wait longer if all handlers have returned.
func TestWorker_StopGivesBackTheRest(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency, c.config.ShutdownTimeout, c.abandon = 4, 50*time.Millisecond, time.Minute
	entered := make(chan struct{}, 2)
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if err := apply(ctx, tx, j); err != nil {
			return err
		}
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	c.enqueueMany(2, job.Request{MaxAttempts: 1})
	stop := c.hire()
	<-entered
	<-entered
	stop() // fails if it waits for c.abandon
	c.wantEffects(0)
	if ids := c.pendingUncharged(); len(ids) != 2 {
		t.Errorf("%d jobs given back uncharged, want 2", len(ids))
	}
	c.wantCount("select count(*) from pawl.worker", 0)
}

// A handler that ignores its context does not keep Run from returning. Its writes are lost.
func TestWorker_StopAbandonsAHungHandler(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.ShutdownTimeout, c.abandon = 50*time.Millisecond, 50*time.Millisecond
	entered, proceed := make(chan struct{}), make(chan struct{})
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		close(entered)
		<-proceed
		return apply(context.WithoutCancel(ctx), tx, j)
	}
	c.enqueueMany(1, job.Request{MaxAttempts: 1})
	stop := c.hire()
	<-entered
	stop()
	close(proceed)
	c.until("the job is not given back", "select count(*) from pawl.job where status = 'pending' and attempts = 0", 1)
	c.wantEffects(0)
}

// A job counts one crash if a stop abandons its handler, in every form. Its attempt is not charged,
// an event names it, and the death is recorded for its queue.
func TestWorker_StopCountsACrashOfWhatItAbandons(t *testing.T) {
	t.Parallel()
	for _, form := range append([]string{"many"}, forms...) {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.config.ShutdownTimeout, c.abandon = 50*time.Millisecond, 50*time.Millisecond
			c.config.Presence.Off = true // with it the attempt would be given back anyway
			entered, proceed := make(chan struct{}), make(chan struct{})
			c.handlers = []job.Handler{c.handlerOf(form, func(job.Job) error {
				close(entered)
				<-proceed
				return errors.New("too late")
			})}
			c.enqueueMany(1, job.Request{MaxAttempts: 1})
			w := c.worker(c.pool)
			defer w.AwaitAttempts(t.Context())
			defer close(proceed)
			stop := c.run(w)
			<-entered
			stop()
			c.wantText("select string_agg(j.status, ' ') from pawl.job as j", "processing")
			// The end of the process ends its transaction, which has the job locked.
			c.exec("select pg_terminate_backend(a.pid) from pg_stat_activity as a where a.datname = current_database() and a.state = 'idle in transaction'")
			c.untilTrue("a sweep takes the job back", func() bool {
				c.sweep("k")
				return c.count("select count(*) from pawl.job as j where j.status = 'pending'") == 1
			})
			c.wantText("select concat_ws(' ', j.attempts, j.crashes, j.crashes_alone, j.last_errors -> -1 ->> 'error') from pawl.job as j",
				"0 1 0 the worker stopped, and the handler had not returned")
			c.wantCount("select count(*) from pawl.death as d where d.queue = 'q'", 1)
			c.wantCount("select count(*) from pawl.worker", 0)
			if got := c.saw(pawl.EventWastedWork, "worker.leave"); got != 1 {
				t.Errorf("%d events name the job, want 1", got)
			}
		})
	}
}

// A job that stops its process again and again, and does not return, is a dead letter in the end.
// Other jobs go on meanwhile.
func TestWorker_StopIsNotForEver(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.ShutdownTimeout, c.abandon, c.config.Timeout = 50*time.Millisecond, 50*time.Millisecond, time.Hour
	var stop context.CancelFunc
	var exit chan struct{}
	rounds := 0
	c.handlers = []job.Handler{c.handlerOf("simple", func(j job.Job) error {
		if j.ID == 1 {
			exited := exit
			// The other job's effect is not enough. If its end is lost, its handler runs again.
			err := patience.Poll(t.Context(), func() bool { return c.count("select count(*) from pawl.job where id <> 1") == 0 })
			stop()
			<-exited
			return err
		}
		return nil
	})}
	c.enqueueMany(1, job.Request{})
	for ; c.count("select count(*) from pawl.job as j where j.status = 'dead_letter'") == 0; rounds++ {
		if rounds == 3 {
			t.Fatal("three stops did not end the job")
		}
		c.enqueueMany(1, job.Request{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stop, exit = cancel, make(chan struct{})
		w := c.worker(c.pool)
		c.must(w.Run(ctx))
		c.exec(`select pawl_v1.job_sweep('{k}', '{"max_crashes": 1}'); update pawl.job set available_at = now() where status = 'pending'`)
		close(exit)
		w.AwaitAttempts(t.Context())
	}
	c.wantText("select concat_ws(' ', j.id, j.status, j.attempts, j.crashes) from pawl.job as j", fmt.Sprint("1 dead_letter 0 ", rounds))
	c.wantEffects(rounds)
}

// A stop charges nothing if the handler returns when its context ends, however often, in every
// form.
func TestWorker_StopChargesNoHandlerThatReturns(t *testing.T) {
	t.Parallel()
	for _, form := range append([]string{"many"}, forms...) {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.config.ShutdownTimeout, c.abandon = time.Millisecond, time.Minute
			entered := make(chan struct{}, 1)
			var over context.Context
			c.config.Middleware = []job.Middleware{func(ctx context.Context, _ job.Call, next func(context.Context) error) error {
				over = ctx
				return next(ctx)
			}}
			c.handlers = []job.Handler{c.handlerOf(form, func(job.Job) error {
				entered <- struct{}{}
				<-over.Done()
				return over.Err()
			})}
			c.enqueueMany(1, job.Request{MaxAttempts: 1})
			for range 3 {
				stop := c.hire()
				<-entered
				stop()
				if ids := c.pendingUncharged(); len(ids) != 1 {
					t.Fatalf("%d jobs given back, want 1", len(ids))
				}
			}
			c.wantCount("select count(*) from pawl.worker", 0)
			if got := c.saw(pawl.EventWastedWork, "job.finish"); got != 3 {
				t.Errorf("%d events name the job, want 3", got)
			}
		})
	}
}

// A stop abandons no job whose handler has returned, also if its end is not recorded yet.
func TestWorker_StopAbandonsNoReturnedHandler(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, `alter function pawl_v1.job_finish_many(bigint[], bigint[], jsonb) rename to job_finish_many_itself;
create function pawl_v1.job_finish_many(p_ids bigint[], p_fences bigint[], p_options jsonb default '{}')
returns table (id bigint, outcome text, detail jsonb) language plpgsql as $$
begin
  perform pg_advisory_xact_lock(1);
  return query select * from pawl_v1.job_finish_many_itself(p_ids, p_fences, p_options);
end $$`)
	c.config.ShutdownTimeout, c.abandon = 50*time.Millisecond, 50*time.Millisecond
	gate, err := pgx.Connect(t.Context(), c.url)
	c.must(err)
	defer gate.Close(context.Background())
	_, err = gate.Exec(t.Context(), "select pg_advisory_lock(1)")
	c.must(err)
	c.handlers = []job.Handler{c.handlerOf("many", func(job.Job) error { return nil })}
	c.enqueueMany(1, job.Request{MaxAttempts: 1})
	w := c.worker(c.pool)
	stop := c.run(w)
	patience.Blocked(c, c.pool, 1, "%job_finish_many%")
	stop()
	c.wantCount("select count(*) from pawl.job where status = 'pending' and attempts = 0 and crashes = 0", 1)
	c.wantCount("select count(*) from pawl.worker", 0)
	_, err = gate.Exec(t.Context(), "select pg_advisory_unlock(1)")
	c.must(err)
	w.AwaitAttempts(t.Context())
}

// A handler that ignores its context costs a slot, but not its job. Another attempt takes effect
// while it still runs, and its later writes are rejected.
func TestWorker_HungHandlerIsReplaced(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Timeout, c.abandon, c.config.Lease = 200*time.Millisecond, 200*time.Millisecond, time.Second
	var calls atomic.Int32
	proceed, woke := make(chan struct{}), make(chan error, 1)
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if calls.Add(1) > 1 {
			return apply(ctx, tx, j)
		}
		if err := apply(ctx, tx, j); err != nil {
			return err
		}
		<-proceed
		err := apply(context.WithoutCancel(ctx), tx, j)
		woke <- err
		return nil
	}
	c.enqueueMany(1, job.Request{MaxAttempts: 10})
	c.hire()
	c.untilDone()
	c.wantEffects(1)
	close(proceed)
	if err := <-woke; err == nil {
		t.Error("the handler left behind could still write")
	}
	c.wantEffects(1)
}

// After Run has returned, no goroutine or connection of the worker is left. The test is not
// parallel, because it looks at the goroutines of the whole process.
func TestWorker_LeavesNothingRunning(t *testing.T) {
	c := setupCrew(t)
	c.concurrency = 4
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if j.ID%3 == 0 {
			return errors.New("boom")
		}
		return apply(ctx, tx, j)
	}
	c.enqueueMany(30, job.Request{MaxAttempts: 2})
	stop := c.hire()
	c.untilDone()
	stop()
	c.untilTrue("no goroutine of a worker is left", func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "job.(*Worker)")
	})
	// pgxpool closes connections in the background.
	c.untilTrue("all connections are given back", func() bool { return c.pool.Stat().AcquiredConns() == 0 })
}

// A worker may be stopped and run again.
func TestWorker_RunsAgain(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	w := c.worker(c.pool)
	for round := range 3 {
		c.enqueueMany(5, job.Request{})
		stop := c.run(w)
		c.untilDone()
		stop()
		c.wantEffects(5 * (round + 1))
	}
}

// If an attempt's outcome cannot be recorded, the same worker records it later, and the job is not
// stuck under a live lease. Here another transaction locks the table at the worst moment.
func TestWorker_SettlesWhenTheDatabaseAllowsIt(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Lease = time.Minute // must not be lost on a busy machine
	var calls atomic.Int32
	entered, proceed := make(chan struct{}), make(chan struct{})
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if calls.Add(1) > 1 {
			return apply(ctx, tx, j)
		}
		close(entered)
		<-proceed
		_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		return err
	}
	c.enqueueMany(1, job.Request{MaxAttempts: 1})
	c.hire()
	<-entered
	locker, locked := c.begin(), make(chan error, 1)
	go func() {
		// a table lock, because other statements might overtake a wait for a row lock
		_, err := locker.Exec(t.Context(), "lock table pawl.job in exclusive mode")
		locked <- err
	}()
	patience.Blocked(c, c.pool, 1, "lock table%")
	close(proceed)
	c.must(<-locked)
	c.untilTrue("settling failed once", func() bool { return c.saw(pawl.EventError, "job.settle") > 0 })
	c.wantCount("select count(*) from pawl.job where status = 'processing'", 1)
	c.must(locker.Rollback(t.Context()))
	c.untilDone()
	c.wantEffects(1)
	if n := c.saw(pawl.EventError, "worker.lease_lost"); n != 0 {
		t.Errorf("the lease was lost %d times", n)
	}
}

// During an outage no attempt is charged and no crash is counted. Afterwards the worker continues.
func TestWorker_OutageIsNotCharged(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Lease = time.Second
	admin := adminOf(t)
	var database string
	c.must(c.pool.QueryRow(t.Context(), "select current_database()").Scan(&database))
	var once atomic.Bool
	away := make(chan error, 1)
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if err := apply(ctx, tx, j); err != nil {
			return err
		}
		if once.CompareAndSwap(false, true) {
			away <- pgtest.Shut(context.Background(), admin, database)
			return errors.New("something went wrong")
		}
		return nil
	}
	c.enqueueMany(10, job.Request{MaxAttempts: 1})
	c.hire()
	c.must(<-away)
	c.untilTrue("the worker cannot register", func() bool { return c.saw(pawl.EventError, "worker.register") > 0 })
	c.must(pgtest.Reopen(t.Context(), admin, database))
	c.untilTrue("connections again", func() bool { return c.pool.Ping(t.Context()) == nil })
	c.untilDone()
	c.wantEffects(10)
	c.wantCount("select count(*) from pawl.job", 0)
}

// A worker that is stopped while it registers still gets its session, and leaves.
func TestWorker_StoppedWhileItRegisters(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, `alter function pawl_v1.worker_register(text, interval, jsonb) rename to worker_register_itself;
create function pawl_v1.worker_register(p_name text, p_lease interval default '30 seconds', p_options jsonb default '{}')
returns table (worker_id bigint, detail jsonb) language plpgsql as $$
begin
  perform pg_advisory_xact_lock(1);
  return query select * from pawl_v1.worker_register_itself(p_name, p_lease, p_options);
end $$`)
	gate, err := pgx.Connect(t.Context(), c.url)
	c.must(err)
	defer gate.Close(context.Background())
	_, err = gate.Exec(t.Context(), "select pg_advisory_lock(1)")
	c.must(err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.worker(c.pool).Run(ctx) }()
	patience.Blocked(c, c.pool, 1, "%worker_register%")
	stop()
	_, err = gate.Exec(t.Context(), "select pg_advisory_unlock(1)")
	c.must(err)
	c.must(patience.Receive(t, "Run has returned", ended))
	c.wantCount("select count(*) from pawl.worker", 0)
}

// Stopping a worker before it began is not an error. Failing to reach the database is, with a hint.
func TestWorker_StoppedBeforeItBegan(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.worker(c.pool).Run(ctx); err != nil {
		t.Errorf("stopped: %v", err)
	}
	away, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/nowhere?pool_max_conns=8")
	c.must(err)
	defer away.Close()
	if err := c.worker(away).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "start the server") {
		t.Errorf("without a database: %v", err)
	}
}
