package job_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// In one call for many jobs, those without an error are finished, and each other job ends with its
// own error. A payload that does not decode does not affect the other jobs.
func TestHandleMany_EachHasItsOwnEnd(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	var mu sync.Mutex
	tries, largest := map[string]int{}, 0
	c.handlers = []job.Handler{job.HandleMany("k", func(_ context.Context, ts []job.Task[string]) []error {
		mu.Lock()
		defer mu.Unlock()
		largest = max(largest, len(ts))
		errs := make([]error, len(ts))
		for i, t := range ts {
			tries[t.Value]++
			switch t.Value {
			case "final":
				errs[i] = pawl.Final(errors.New("never"))
			case "cancel":
				errs[i] = job.Cancel(nil)
			case "again":
				if tries[t.Value] < 3 {
					errs[i] = errors.New("not yet")
				}
			case "later":
				if tries[t.Value] < 3 {
					errs[i] = job.Snooze(time.Millisecond)
				}
			}
		}
		return errs
	}).With(job.ManyPolicy{BatchSize: 10})}
	for _, what := range []string{"fine", "final", "cancel", "again", "later"} {
		c.enqueue(job.Request{Queue: "q", Kind: "k", Value: what})
	}
	c.enqueue(job.Request{Queue: "q", Kind: "k", Payload: []byte("no JSON")})
	for n := range 20 {
		c.enqueue(job.Request{Queue: "q", Kind: "k", Value: fmt.Sprint(n)})
	}
	c.hire()
	c.until("jobs are left", "select count(*) from pawl.job where status not in ('dead_letter', 'cancelled')", 0)
	c.wantCount("select count(*) from pawl.job where status = 'dead_letter' and attempts = 1", 2)
	c.wantCount("select count(*) from pawl.job where status = 'cancelled'", 1)
	mu.Lock()
	defer mu.Unlock()
	if tries["fine"] != 1 || tries["final"] != 1 || tries["again"] != 3 || tries["later"] != 3 || tries["7"] != 1 || largest != 10 {
		t.Errorf("tries %v, the largest batch %d", tries, largest)
	}
}

// A panic, or the wrong number of errors, charges all jobs of the call.
func TestHandleMany_FailsAsAWhole(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func() []error{
		"panic":    func() []error { panic("now") },
		"nonsense": func() []error { return []error{nil, nil, nil} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.handlers = []job.Handler{job.HandleMany("k", func(context.Context, []job.Task[[]byte]) []error { return fn() })}
			c.enqueueMany(2, job.Request{MaxAttempts: 2})
			c.hire()
			c.until("not both are dead letters", "select count(*) from pawl.job where status = 'dead_letter' and attempts = 2", 2)
		})
	}
}

// After a kill, only the jobs that the process was running run again.
func TestHandleMany_CrashRunsItAgain(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(3, job.Request{})
	p := c.process(order{Form: "many", Concurrency: 10, Faults: "job.finish.before=kill"})
	c.untilTrue("the process has died", p.ended)
	c.wantCount("select count(*) from effect", 3)
	c.handlers = []job.Handler{job.HandleMany("k", func(ctx context.Context, ts []job.Task[[]byte]) []error {
		for _, t := range ts {
			if _, err := c.pool.Exec(ctx, "insert into effect values ($1)", t.ID); err != nil {
				return []error{err}
			}
		}
		return nil
	})}
	c.hire()
	c.untilDone()
	c.wantCount("select count(*) from effect", 6)
}

// If Admit returns 0, the jobs stay pending. A kick calls it again.
func TestQueue_Admit(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	var open atomic.Int64
	config := c.complete()
	config.Poll = time.Hour
	config.Queues[0].Admit = func() int { return int(open.Load()) }
	w, err := job.NewWorker(c.pool, config)
	c.must(err)
	c.enqueueMany(3, job.Request{})
	c.run(w)
	patience.Watch(100*time.Millisecond, func() {
		c.wantCount("select count(*) from pawl.job where status = 'pending' and fence = 0", 3)
	})
	open.Store(1)
	w.Kick()
	c.untilDone()
	c.wantEffects(3)
}

// silentEnqueues disables all notifications but job_kick's, as max_prepared_transactions > 0 does.
const silentEnqueues = "create or replace function pawl_v1._wake(p_queues text[]) returns void language plpgsql as 'begin end'"

// A kick through the database wakes a listening worker of the queue in any process.
func TestKick_ThroughTheDatabase(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, silentEnqueues)
	c.config.Poll = time.Hour
	c.hire()
	c.until("the worker is not present", "select count(*) from pawl.worker where presence", 1)
	job.Kick(c.pool, "other")
	c.wakes("a kick", func() {
		c.enqueueMany(1, job.Request{})
		job.Kick(c.pool, "other", "q")
	})
}

// Jobs that a handler enqueues in its lent transaction are kicked after that has committed.
func TestKick_FollowsAHandlersCommit(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, silentEnqueues)
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		_, err := job.Enqueue(ctx, tx, job.Request{Queue: "next", Kind: "next"})
		return err
	}
	c.hire()
	config := c.complete()
	config.Poll, config.Queues = time.Hour, []job.Queue{{Name: "next"}}
	config.Handlers = []job.Handler{inTx("next", apply)}
	w, err := job.NewWorker(c.pool, config)
	c.must(err)
	c.run(w)
	c.until("the workers are not present", "select count(*) from pawl.worker where presence", 2)
	next := asleep + " and l.objid::bigint = pawl_v1._wake_key('next')::bigint & 4294967295"
	c.wakesAfter("a handler's commit", func() { c.until("the worker of what follows is not announced", next, 1) },
		func() { c.enqueueMany(1, job.Request{}) })
}
