package job_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// A process is killed after an exchange has committed, before it uses the reply. Jobs that ended in
// it do not run again. Jobs that it claimed run once, in another process.
func TestExchange_KilledAfterItsCommit(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(10, job.Request{})
	victim := c.process(order{Form: "simple", Faults: "job.exchange.after=kill@2"})
	c.untilTrue("the process killed", victim.ended)
	c.wantCount("select count(*) from effect", 3)
	c.wantCount("select count(*) from pawl.job", 7)
	c.wantCount("select count(*) from pawl.job where status = 'processing' and attempts = 1", 1)
	c.process(order{Form: "simple"})
	c.untilDone()
	c.wantEffects(10)
	c.wantCount("select count(*) from pawl.job", 0)
}

// The reply to an exchange is lost, before or after its COMMIT. Its ends are retried, its claims
// are released, and no handler that has returned runs again.
func TestExchange_LostReply(t *testing.T) {
	t.Parallel()
	for name, world := range worlds {
		for _, slots := range []int{10, 80} { // with 80, two exchanges are in flight at once
			t.Run(fmt.Sprint(name, " ", slots), func(t *testing.T) {
				t.Parallel()
				proxy, through := wireproxy.Start(t, pawltest.URL(t, effects))
				c := setupCrewOn(t, through+"&default_query_exec_mode=cache_describe")
				c.handlers = []job.Handler{c.handlerOf("simple", func(job.Job) error { return nil })}
				c.concurrency = slots
				var exchanges atomic.Int32
				proxy.Aim(wireproxy.Executes("pawl_v1.job_exchange"))
				proxy.OnCommit(func() wireproxy.Cut {
					if exchanges.Add(1)%4 == 0 {
						return world
					}
					return wireproxy.Pass
				})
				c.enqueueMany(30*slots, job.Request{MaxAttempts: 1})
				c.hire()
				c.untilDone()
				c.wantEffects(30 * slots)
				c.wantCount("select count(*) from pawl.job", 0)
				if proxy.Cuts() < 2 {
					t.Errorf("%d replies were cut, of %d exchanges", proxy.Cuts(), exchanges.Load())
				}
			})
		}
	}
}

// A process is stopped past its lease when its handler has returned, and another process runs the
// job. When the process continues, its end is rejected. It claims no job for its lost session, and
// continues under a new lease.
func TestExchange_StoppedPastTheLease(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(1, job.Request{})
	patient := order{Form: "simple", Lease: time.Minute, Timeout: time.Minute}
	frozen := patient
	frozen.Faults = "job.finish.before=stop"
	zombie := c.process(frozen)
	zombie.untilStopped()
	c.wantCount("select count(*) from effect", 1)
	c.exec("update pawl.worker set seen_at = now() - 2 * lease")
	heir := c.process(patient)
	c.untilDone()
	// a simple handler ran twice, and its job ended once
	c.wantCount("select count(*) from effect", 2)
	c.enqueueMany(3, job.Request{})
	c.untilDone()
	heir.kill()
	zombie.wake()
	zombie.until("stale_write_refused job.finish", "wasted_work job.finish")
	c.enqueueMany(3, job.Request{})
	c.untilDone()
	c.wantCount("select count(*) from effect", 8)
	c.wantCount("select count(*) from (select from effect group by job having count(*) > 1) as d", 1)
}

// Exchanges never hold more jobs than Concurrency, and use all slots. With few slots exchanges run
// one after another, and with many slots two at once. In the last two thirds of the jobs, handlers
// wait until all slots are in use.
func TestExchange_ConcurrencyIsTheBound(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{7, 130} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.concurrency = slots
			var most, running, together, begun atomic.Int32
			higher := func(highest *atomic.Int32, n int) {
				for was := highest.Load(); n > int(was) && !highest.CompareAndSwap(was, int32(n)); was = highest.Load() {
				}
			}
			full := make(chan struct{})
			fill := sync.OnceFunc(func() { close(full) })
			c.handlers = simply(func(ctx context.Context, j job.Job) error {
				now := int(running.Add(1))
				higher(&together, now)
				defer running.Add(-1)
				patience.Elapse(time.Millisecond)
				if int(begun.Add(1)) > 20*slots {
					if now == slots {
						fill()
					}
					select {
					case <-full:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				if j.ID%int64(slots) > 5 { // each query takes a connection
					return nil
				}
				var held int
				err := c.pool.QueryRow(ctx, "select count(*) from pawl.job where status = 'processing'").Scan(&held)
				higher(&most, held)
				return err
			})
			jobs := 60 * slots
			c.exec(fmt.Sprintf("insert into pawl.job (queue, kind, payload) select 'q', 'k', '' from generate_series(1, %d)", jobs))
			c.hire()
			c.untilDone()
			if int(most.Load()) > slots || int(together.Load()) != slots {
				t.Errorf("%d jobs processing, %d handlers at once, of %d slots", most.Load(), together.Load(), slots)
			}
			c.untilTrue("all events are emitted", func() bool { return int(c.counters.Count(pawl.EventSucceeded)) == jobs })
		})
	}
}

// While an exchange with many ends is in flight, the producer makes a second one, but no third. Two
// locks delay deletes: one those of a single job, the other those of several.
func TestExchange_TwoAtOnce(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.exec(`create function hold() returns trigger language plpgsql as $$
begin perform pg_advisory_xact_lock_shared(case (select count(*) from gone) when 1 then 1 else 2 end); return null; end $$;
create trigger hold after delete on pawl.job referencing old table as gone for each statement execute function hold()`)
	single, several := c.begin(), c.begin()
	for n, tx := range []pgx.Tx{single, several} {
		_, err := tx.Exec(t.Context(), "select pg_advisory_xact_lock($1)", n+1)
		c.must(err)
	}
	const each, all = 100, 500
	c.concurrency = 3*each + 1
	var proceed [4]chan struct{}
	for part := range proceed {
		proceed[part] = make(chan struct{})
	}
	var begun, ended atomic.Int32
	c.handlers = simply(func(_ context.Context, j job.Job) error {
		begun.Add(1)
		defer ended.Add(1)
		if n := int(j.ID - 1); n < c.concurrency {
			<-proceed[n/each]
		}
		return nil
	})
	c.enqueueMany(all, job.Request{})
	c.hire()
	c.untilTrue("all slots are used", func() bool { return int(begun.Load()) == c.concurrency })
	// pg_stat_activity hides wait_event for a moment, once a second, during the check for
	// deadlocks.
	const waiting = "select count(*) from pg_locks where database = (select oid from pg_database where datname = current_database()) and locktype = 'advisory' and not granted"
	close(proceed[3])
	c.until("the exchange of one job does not wait", waiting, 1)
	close(proceed[0])
	c.untilTrue("a hundred are done", func() bool { return ended.Load() == each+1 })
	// time for the producer to get all of them before its next exchange
	patience.Elapse(100 * time.Millisecond)
	c.must(single.Commit(t.Context()))
	c.until("the one job has not ended", fmt.Sprintf("select count(*) from pawl.job where id = %d", c.concurrency), 0)
	c.until("the exchange of a hundred jobs does not wait", waiting, 1)
	close(proceed[1])
	c.until("the producer does not make the next exchange meanwhile", waiting, 2)
	close(proceed[2])
	patience.Watch(300*time.Millisecond, func() { c.wantCount(waiting, 2) })
	c.must(several.Commit(t.Context()))
	c.untilDone()
	c.wantCount("select count(*) from pawl.job", 0)
	if n := begun.Load(); n != all {
		t.Errorf("%d calls for %d jobs", n, all)
	}
}

// Run returns after the hooks have received the events of all ended jobs.
func TestExchange_HooksReturnBeforeRun(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency = 20
	record := c.config.Hooks
	var fresh atomic.Int32
	c.config.Hooks = pawl.Hooks{OnEvent: func(ctx context.Context, e pawl.Event) {
		record.Emit(ctx, e)
		if e.Kind == pawl.EventSucceeded {
			patience.Elapse(time.Millisecond)
			fresh.Add(1)
		}
	}}
	c.handlers = simply(func(context.Context, job.Job) error { return nil })
	c.enqueueMany(200, job.Request{})
	stop := c.hire()
	c.until("jobs are left", "select count(*) from pawl.job", 0)
	stop()
	if fresh.Load() != 200 {
		t.Errorf("%d events, want 200", fresh.Load())
	}
}

// A hook that never returns does not keep Run from returning.
func TestExchange_AHookThatHangsDoesNotKeepRun(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency, c.abandon = 20, 100*time.Millisecond
	c.config.ShutdownTimeout = 100 * time.Millisecond
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	c.config.Hooks = pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventSucceeded {
			<-hang
		}
	}}
	c.handlers = simply(func(context.Context, job.Job) error { return nil })
	c.enqueueMany(40, job.Request{})
	stop := c.hire()
	c.until("no job has ended", "select count(*) from pawl.job where id = 1", 0)
	stop()
}

// While a suspect waits to be alone, ends do not wait for an exchange, because the producer waits
// at the isolator. The test is not parallel, because other tests' handlers would be in the
// isolator. An end may be late once on a busy machine; one that waits at the isolator is late each
// time.
func TestExchange_EndsDoNotWaitAtTheIsolator(t *testing.T) {
	c := setupCrew(t)
	c.concurrency = 2
	begun, proceed := make(chan struct{}), make(chan struct{})
	c.handlers = simply(func(context.Context, job.Job) error { begun <- struct{}{}; <-proceed; return nil })
	c.hire()
	for range 5 {
		c.enqueueMany(1, job.Request{})
		<-begun
		c.must(solo.Process.Enter(t.Context(), 1)) // a suspect was an entrant before
		var suspect *solo.Suspect
		c.untilTrue("another suspect has gone", func() bool { suspect = solo.Process.Suspect(); return suspect != nil })
		alone := make(chan bool, 1)
		go func() { alone <- suspect.Alone(t.Context()) }()
		c.untilTrue("the producer waits at the isolator, or the suspect has given up", func() bool { return solo.Process.Waiting() > 0 || len(alone) > 0 })
		proceed <- struct{}{}
		was := <-alone
		suspect.Leave()
		if was {
			return
		}
	}
	t.Error("the end of a job waited at the isolator for a suspect that waited for it")
}

// A worker whose lease is over learns it from the reply. The job that its exchange ended stays
// ended, and its handler does not run again. The worker then claims under a new lease.
func TestExchange_EndsWithItsLeaseLost(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency, c.config.Lease = 1, time.Hour
	begun, proceed := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	c.handlers = simply(func(context.Context, job.Job) error {
		if calls.Add(1) == 1 {
			close(begun)
			<-proceed
		}
		return nil
	})
	c.enqueueMany(3, job.Request{})
	c.hire()
	<-begun
	// No heartbeat renews the lease of this session. A young session does not sweep.
	c.exec("create function over() returns trigger language plpgsql as $$ begin new.seen_at := now() - new.lease * 2; return new; end $$")
	c.exec(fmt.Sprintf("create trigger over before update on pawl.worker for each row when (new.id = %d) execute function over()",
		one[int64](c, "select w.id from pawl.worker as w")))
	c.exec("update pawl.worker set seen_at = now()")
	close(proceed)
	c.untilDone()
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls for 3 jobs", n)
	}
	if c.saw(pawl.EventError, "worker.lease_lost") != 1 || c.saw(pawl.EventStaleWriteRefused, "job.finish") != 0 {
		t.Error("the session did not end for its lease, or a good end was refused")
	}
}

// Two workers on one queue run each job once, and the jobs of a lane in order.
func TestExchange_TwoWorkersOnAQueue(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency = 20
	var mu sync.Mutex
	ran := map[string][]int64{}
	c.handlers = simply(func(_ context.Context, j job.Job) error {
		mu.Lock()
		defer mu.Unlock()
		ran[j.Lane] = append(ran[j.Lane], j.ID)
		return nil
	})
	const lanes, each = 5, 40
	for range each {
		for lane := range lanes {
			c.enqueue(job.Request{Queue: "q", Kind: "k", Lane: fmt.Sprint(lane)})
		}
	}
	c.enqueueMany(300, job.Request{})
	c.hire()
	c.hire()
	c.untilDone()
	mu.Lock()
	defer mu.Unlock()
	for lane, ids := range ran {
		if want := map[bool]int{true: 300, false: each}[lane == ""]; len(ids) != want {
			t.Errorf("lane %q: %d runs, want %d", lane, len(ids), want)
		}
		if lane != "" && !slices.IsSorted(ids) {
			t.Errorf("lane %q ran in the order %v", lane, ids)
		}
	}
	if len(ran) != lanes+1 {
		t.Errorf("%d lanes ran", len(ran)-1)
	}
}
