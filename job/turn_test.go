package job_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/wireproxy"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// A process is killed when a turn has committed and nothing of its answer is used: what ended there is not run again, and what was claimed
// there runs, once, elsewhere.
func TestTurn_KilledBehindItsCommit(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(10, job.Request{})
	victim := c.process(order{Form: "simple", Faults: "job.turn.after=kill@2"})
	c.untilTrue("the process killed", victim.ended)
	c.wantCount("select count(*) from effect", 3)
	c.wantCount("select count(*) from pawl.job", 7)
	c.wantCount("select count(*) from pawl.job where status = 'processing' and attempts = 1", 1)
	c.process(order{Form: "simple"})
	c.untilDone()
	c.wantEffects(10)
	c.wantCount("select count(*) from pawl.job", 0)
}

// The reply to a turn is lost, before its COMMIT or behind it: its ends are asked for again, what it claimed goes back, and no handler that is
// done runs again.
func TestTurn_LostReply(t *testing.T) {
	t.Parallel()
	for name, world := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through := wireproxy.Start(t, pawltest.URL(t, effects))
			c := setupCrewOn(t, through+"&default_query_exec_mode=cache_describe")
			c.handlers = []job.Handler{c.handlerOf("simple", func(job.Job) error { return nil })}
			c.concurrency = 10
			var turns atomic.Int32
			proxy.Aim(wireproxy.Executes("pawl_v1.job_turn"))
			proxy.OnCommit(func() wireproxy.Cut {
				if turns.Add(1)%4 == 0 {
					return world
				}
				return wireproxy.Pass
			})
			c.enqueueMany(300, job.Request{MaxAttempts: 1})
			c.hire()
			c.untilDone()
			c.wantEffects(300)
			c.wantCount("select count(*) from pawl.job", 0)
			if proxy.Cuts() < 2 {
				t.Errorf("%d replies were cut, of %d turns", proxy.Cuts(), turns.Load())
			}
		})
	}
}

// A process is stopped past its lease when its handler is done: another one runs the job. When it wakes, its end is refused, it claims
// nothing for a worker that is gone, and works on under a new lease.
func TestTurn_StoppedPastTheLease(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(1, job.Request{})
	patient := order{Form: "simple", Lease: 10 * time.Second, Timeout: time.Minute} // a busy machine must not end the lease of the others
	frozen := patient
	frozen.Faults = "job.finish.before=stop"
	zombie := c.process(frozen)
	zombie.untilStopped()
	c.wantCount("select count(*) from effect", 1)
	heir := c.process(patient)
	c.untilDone()
	c.wantCount("select count(*) from effect", 2) // the handler of this form ran twice, and its job ended once
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

// However turns end jobs and claim others, no more are in hand than Concurrency allows, and all slots are used.
func TestTurn_ConcurrencyIsTheBound(t *testing.T) {
	t.Parallel()
	const slots = 7
	c := setupCrew(t)
	c.concurrency = slots
	var most, running, together atomic.Int32
	higher := func(highest *atomic.Int32, n int32) {
		for was := highest.Load(); n > was && !highest.CompareAndSwap(was, n); was = highest.Load() {
		}
	}
	c.handlers = simply(func(ctx context.Context, _ job.Job) error {
		higher(&together, running.Add(1))
		defer running.Add(-1)
		var held int32
		err := c.pool.QueryRow(ctx, "select count(*) from pawl.job where status = 'processing'").Scan(&held)
		higher(&most, held)
		time.Sleep(time.Millisecond)
		return err
	})
	c.enqueueMany(400, job.Request{})
	c.hire()
	c.untilDone()
	if most.Load() > slots || together.Load() != slots {
		t.Errorf("%d jobs in hand, %d handlers at once, of %d slots", most.Load(), together.Load(), slots)
	}
	c.untilTrue("all are told of", func() bool { return c.counters.Count(pawl.EventFresh) == 400 })
}

// Run returns when all hooks have been told of what ended.
func TestTurn_AllIsToldBeforeRunReturns(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency = 20
	record := c.config.Hooks
	var fresh atomic.Int32
	c.config.Hooks = pawl.Hooks{OnEvent: func(ctx context.Context, e pawl.Event) {
		record.Emit(ctx, e)
		if e.Kind == pawl.EventFresh {
			time.Sleep(time.Millisecond)
			fresh.Add(1)
		}
	}}
	c.handlers = simply(func(context.Context, job.Job) error { return nil })
	c.enqueueMany(200, job.Request{})
	stop := c.hire()
	c.until("jobs are left", "select count(*) from pawl.job", 0)
	stop()
	if fresh.Load() != 200 {
		t.Errorf("told of %d", fresh.Load())
	}
}

// A hook that never returns does not keep Run.
func TestTurn_AHookThatHangsDoesNotKeepRun(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency, c.abandon = 20, 100*time.Millisecond
	c.config.ShutdownTimeout = 100 * time.Millisecond
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	c.config.Hooks = pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventFresh {
			<-hang
		}
	}}
	c.handlers = simply(func(context.Context, job.Job) error { return nil })
	c.enqueueMany(40, job.Request{})
	stop := c.hire()
	c.until("no job has ended", "select count(*) from pawl.job where id = 1", 0)
	stop()
}

// While a suspect waits to be alone, what is done ends at once, and does not wait for a turn: the line stands at the door itself. Other tests
// would be inside as well, so it runs beside none. On a busy machine an end may be late once; one that waits at the door is late each time.
func TestTurn_EndsDoNotWaitAtTheDoor(t *testing.T) {
	c := setupCrew(t)
	c.concurrency = 2
	begun, goOn := make(chan struct{}), make(chan struct{})
	c.handlers = simply(func(context.Context, job.Job) error { begun <- struct{}{}; <-goOn; return nil })
	c.hire()
	for range 5 {
		c.enqueueMany(1, job.Request{})
		<-begun
		c.must(solo.Process.Enter(t.Context(), 1)) // a suspect was an entrant before
		var suspect *solo.Suspect
		c.untilTrue("another suspect has gone", func() bool { suspect = solo.Process.Suspect(); return suspect != nil })
		alone := make(chan bool, 1)
		go func() { alone <- suspect.Alone(t.Context()) }()
		c.untilTrue("the line is at the door, or the suspect has given up", func() bool { return solo.Process.Waiting() > 0 || len(alone) > 0 })
		goOn <- struct{}{}
		was := <-alone
		suspect.Leave()
		if was {
			return
		}
	}
	t.Error("the end of a job waited at the door of a suspect that waited for it")
}

// A worker whose lease is over hears of it by a row: the job that its turn ended stays ended, and its handler does not run again. It claims under
// a new lease.
func TestTurn_EndsWithItsLeaseLost(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency, c.config.Lease = 1, time.Minute
	begun, goOn := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	c.handlers = simply(func(context.Context, job.Job) error {
		if calls.Add(1) == 1 {
			close(begun)
			<-goOn
		}
		return nil
	})
	c.enqueueMany(3, job.Request{})
	c.hire()
	<-begun
	c.exec("update pawl.worker set seen_at = now() - lease * 2") // a session that is young sweeps nobody
	close(goOn)
	c.untilDone()
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls for 3 jobs", n)
	}
	if c.saw(pawl.EventTrouble, "worker.lease_lost") != 1 || c.saw(pawl.EventStaleWriteRefused, "job.finish") != 0 {
		t.Error("the session did not end for its lease, or a good end was refused")
	}
}

// Two workers take turns on one queue, with lanes and without: each job runs once, and those of a lane in their order.
func TestTurn_TwoWorkersOnAQueue(t *testing.T) {
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
