package job_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// Only the tests of this file with their own processes are parallel. The isolator belongs to the
// process, and other tests' handlers would be in it.

// healthyWait is how long healthy work may wait for suspects in a row, plus slack.
const healthyWait = solo.AloneWait + solo.AloneFor + 45*time.Second

// hire2 starts a worker for the queues q, with the given slots, and r, with four slots.
func (c *crew) hire2(slots int, handlers ...job.Handler) *job.Worker {
	c.Helper()
	config := c.config
	config.Queues = []job.Queue{{Name: "q", Concurrency: slots}, {Name: "r", Concurrency: 4}}
	config.Handlers = handlers
	w, err := job.NewWorker(c.pool, config)
	c.must(err)
	w.AbandonAfter(c.abandon)
	c.run(w)
	<-w.Ready()
	return w
}

func simple(kind string, fn func(ctx context.Context, j job.Job) error) job.SingleHandler {
	return job.Handle(kind, func(ctx context.Context, t job.Task[[]byte]) error { return fn(ctx, t.Job) })
}

// quick is a handler that counts its runs.
func quick(kind string, ran *atomic.Int32) job.Handler {
	return simple(kind, func(context.Context, job.Job) error {
		ran.Add(1)
		return nil
	})
}

// within fails if the condition is not met in time.
func (c *crew) within(limit time.Duration, what string, reached func() bool) {
	c.Helper()
	patience.Within(c, limit, what, reached)
}

// Process takes its slot before it enters the isolator. If a suspect has the only slot, both
// finish.
func TestProcess_WaitsForASlotOutsideOfTheIsolator(t *testing.T) {
	c := setupCrew(t)
	var ran atomic.Int32
	w := c.hire2(1, simple("k", func(context.Context, job.Job) error {
		ran.Add(1)
		patience.Elapse(50 * time.Millisecond)
		return nil
	}))
	for round := range 5 {
		before := ran.Load()
		c.enqueue(job.Request{Queue: "q", Kind: "k"}) // takes the only slot
		c.within(healthyWait, "the first runs", func() bool { return ran.Load() > before })
		byID := c.enqueue(job.Request{Queue: "q", Kind: "k", StartIn: time.Hour}).ID
		answered := make(chan error, 1)
		go func() {
			for {
				_, err := w.Process(t.Context(), byID)
				if !pawl.Retryable(err) {
					answered <- err
					return
				}
			}
		}()
		c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('q', 'k', '', 1)")
		c.must(patience.Receive(t, fmt.Sprintf("round %d: the process goes on", round), answered))
		c.until("the suspect does not run", "select count(*) from pawl.job where crashes > 0", 0)
	}
}

// A job that Process claims later is not processing while it waits for a slot.
func TestProcess_ClaimsNothingWithoutASlot(t *testing.T) {
	c := setupCrew(t)
	entered, proceed := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	w := c.hire2(1, simple("k", func(_ context.Context, j job.Job) error {
		enter()
		<-proceed
		return nil
	}))
	defer close(proceed)
	c.enqueue(job.Request{Queue: "q", Kind: "k"})
	<-entered
	byID := c.enqueue(job.Request{Queue: "q", Kind: "k"}).ID
	// A busy machine may not reach the wait for a slot in time.
	for limit := time.Second; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		got, err := w.Process(ctx, byID)
		cancel()
		if errors.Is(err, pawl.ErrInProgress) && got == "" {
			break
		}
		if err == nil || limit > time.Minute {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	c.wantCount("select count(*) from pawl.job where status = 'pending' and fence = 0", 1)
}

// Process waits for its slot outside the isolator, so it does not keep a suspect from being alone.
func TestProcess_ThatWaitsForASlotIsNoCompany(t *testing.T) {
	c := setupCrew(t)
	var entered, ran, alone atomic.Int32
	asked := func(ctx context.Context, query string) (n int) {
		if err := c.pool.QueryRow(ctx, query).Scan(&n); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		return n
	}
	w := c.hire2(1, simple("holds", func(ctx context.Context, _ job.Job) error {
		entered.Add(1)
		_ = patience.Poll(ctx, func() bool {
			return asked(ctx, "select count(*) from pawl.job where kind = 'suspect' and status = 'processing'") > 0
		})
		return nil
	}), simple("by id", func(ctx context.Context, _ job.Job) error {
		_ = patience.Poll(ctx, func() bool { return ran.Load() == entered.Load() })
		return nil
	}), simple("suspect", func(ctx context.Context, _ job.Job) error {
		alone.Add(int32(asked(ctx, "select count(*) from pawl.worker where alone_job is not null")))
		ran.Add(1)
		return nil
	}))
	// On a busy machine the handler that holds the slot may not leave in time.
	for round := int32(1); round <= 10 && alone.Load() == 0; round++ {
		c.enqueue(job.Request{Queue: "q", Kind: "holds"})
		c.within(healthyWait, "the slot is held", func() bool { return entered.Load() == round })
		byID := c.enqueue(job.Request{Queue: "q", Kind: "by id"}).ID
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for _, err := w.Process(t.Context(), byID); pawl.Retryable(err) && t.Context().Err() == nil; {
				_, err = w.Process(t.Context(), byID)
			}
		}()
		// The wait is not visible here. If it has not begun, this round proves nothing.
		patience.Elapse(500 * time.Millisecond)
		c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('r', 'suspect', '', 1)")
		c.within(3*healthyWait, "the suspect runs", func() bool { return ran.Load() == round })
		patience.Receive(t, "Process returns", answered)
		c.until("all finished", "select count(*) from pawl.job", 0)
	}
	if alone.Load() == 0 {
		t.Error("no suspect was alone while a call of Process waited for a slot")
	}
}

// Handlers that ignore their context, or may run for an hour, do not make other queues wait for a
// suspect. The suspect does not wait for them either.
func TestSuspect_LongHandlersStopNobody(t *testing.T) {
	c := setupCrew(t)
	var fast, suspects atomic.Int32
	entered, proceed := make(chan struct{}, 1), make(chan struct{})
	c.hire2(4, simple("long", func(context.Context, job.Job) error {
		entered <- struct{}{}
		<-proceed
		return nil
	}).With(job.Policy{Timeout: time.Hour}), quick("fast", &fast), quick("k", &suspects))
	defer close(proceed)
	c.enqueue(job.Request{Queue: "q", Kind: "long"})
	<-entered
	c.exec("insert into pawl.job (queue, kind, payload, crashes) select 'q', 'k', '', 1 from generate_series(1, 3)")
	for range 3 {
		fast.Store(0)
		c.exec("select pawl_v1.job_enqueue('r', 'fast', '') from generate_series(1, 100)")
		c.within(healthyWait, "100 instant jobs of another queue", func() bool { return fast.Load() == 100 })
	}
	c.within(2*healthyWait, "the suspects run", func() bool { return suspects.Load() == 3 })
}

// A suspect that does not return delays other work only as long as it may be alone. It delays the
// next suspect only until its own limit.
func TestSuspect_HangingSuspectDelaysOthersBriefly(t *testing.T) {
	c := setupCrew(t)
	c.abandon = 500 * time.Millisecond
	var fast, suspects atomic.Int32
	entered, proceed := make(chan struct{}, 1), make(chan struct{})
	c.hire2(4, simple("deaf", func(_ context.Context, j job.Job) error {
		if j.Attempt == 1 {
			entered <- struct{}{}
			<-proceed
		}
		return nil
	}).With(job.Policy{Timeout: time.Second, Backoff: job.Backoff{Base: time.Hour, Max: time.Hour}}), quick("fast", &fast), quick("k", &suspects))
	defer close(proceed)
	c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('q', 'deaf', '', 1)")
	<-entered
	c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('q', 'k', '', 1); select pawl_v1.job_enqueue('r', 'fast', '') from generate_series(1, 100)")
	c.within(healthyWait, "100 instant jobs of another queue", func() bool { return fast.Load() == 100 })
	c.within(healthyWait, "the next suspect", func() bool { return suspects.Load() == 1 })
}

// Jobs behind long handlers in all slots wait for a slot, but not for a suspect.
func TestSuspect_WithAllSlotsHeld(t *testing.T) {
	c := setupCrew(t)
	var ran atomic.Int32
	proceed := make(chan struct{})
	c.hire2(2, simple("long", func(context.Context, job.Job) error {
		ran.Add(1)
		<-proceed
		return nil
	}).With(job.Policy{Timeout: time.Hour}), quick("k", &ran))
	c.exec("select pawl_v1.job_enqueue(q, 'long', '') from unnest('{q,q,r,r,r,r}'::text[]) as q")
	c.within(healthyWait, "all slots are held", func() bool { return ran.Load() == 6 })
	c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('q', 'k', '', 1), ('r', 'k', '', 1), ('r', 'k', '', 0)")
	close(proceed)
	c.within(healthyWait, "suspects and others", func() bool { return ran.Load() == 9 })
}

// Two suspects of one process never run together, in any queue or worker, and none starves.
func TestSuspect_OneAtATime(t *testing.T) {
	c := setupCrew(t)
	var running, ran, together atomic.Int32
	work := simple("k", func(context.Context, job.Job) error {
		if running.Add(1) > 1 {
			together.Add(1)
		}
		patience.Elapse(5 * time.Millisecond)
		running.Add(-1)
		ran.Add(1)
		return nil
	})
	c.exec("insert into pawl.job (queue, kind, payload, crashes) select q, 'k', '', 1 from generate_series(1, 10), unnest('{q,r}'::text[]) as q")
	c.hire2(4, work)
	c.hire2(4, work)
	c.within(3*healthyWait, "all suspects", func() bool { return ran.Load() == 20 })
	if together.Load() > 0 {
		t.Errorf("%d suspects ran beside another", together.Load())
	}
	c.until("all finished", "select count(*) from pawl.job", 0)
}

// While the database counts a suspect as alone, no other job runs. The mark is set before the
// suspect begins, and cleared before other work enters.
func TestSuspect_IsMarkedOnlyWhileAlone(t *testing.T) {
	c := setupCrew(t)
	var told, crowded, fast atomic.Int32
	marked := func(ctx context.Context) (n int32) {
		if err := c.pool.QueryRow(ctx, "select count(*)::int from pawl.worker where alone_job is not null").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	c.hire2(8, simple("slow", func(ctx context.Context, j job.Job) error {
		told.Add(marked(ctx)) // 0 if other work did not leave in time
		patience.Elapse(solo.AloneFor)
		return nil
	}), simple("fast", func(ctx context.Context, j job.Job) error {
		crowded.Add(marked(ctx))
		fast.Add(1)
		return nil
	}))
	c.exec("insert into pawl.job (queue, kind, payload, crashes) select 'q', 'slow', '', 1 from generate_series(1, 3)")
	for left := 1; left > 0; {
		c.exec("select pawl_v1.job_enqueue(q, 'fast', '') from generate_series(1, 5), unnest('{q,r}'::text[]) as q")
		c.must(c.pool.QueryRow(t.Context(), "select count(*) from pawl.job where kind = 'slow'").Scan(&left))
	}
	c.until("all finished", "select count(*) from pawl.job", 0)
	if told.Load() == 0 || crowded.Load() > 0 || fast.Load() == 0 {
		t.Errorf("%d suspects were marked; %d of %d others ran while one was", told.Load(), crowded.Load(), fast.Load())
	}
	c.wantCount("select count(*) from pawl.worker where alone_job is not null", 0)
}

// If a mark cannot be cleared, healthy work does not wait longer. It is cleared later.
func TestSuspect_FailedUnmarkDelaysNoOthers(t *testing.T) {
	c := setupCrew(t)
	var fast atomic.Int32
	entered, proceed := make(chan struct{}), make(chan struct{})
	c.hire2(4, simple("slow", func(context.Context, job.Job) error {
		close(entered)
		<-proceed
		return nil
	}), quick("fast", &fast))
	defer close(proceed)
	c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('q', 'slow', '', 1)")
	<-entered
	tx := c.begin()
	// A psql session may lock these rows.
	_, err := tx.Exec(t.Context(), "select from pawl.worker for no key update")
	c.must(err)
	c.exec("select pawl_v1.job_enqueue('r', 'fast', '')")
	c.within(healthyWait, "healthy work goes on", func() bool { return fast.Load() == 1 })
	c.within(healthyWait, "the error is emitted", func() bool { return c.saw(pawl.EventError, "worker.isolate") > 0 })
	c.wantCount("select count(*) from pawl.worker where alone_job is not null", 1)
	c.must(tx.Rollback(t.Context()))
	c.until("the mark stands", "select count(*) from pawl.worker where alone_job is not null", 0)
}

// Process of a suspect returns an error while another runs, and the job stays uncharged.
func TestProcess_OfASecondSuspect(t *testing.T) {
	c := setupCrew(t)
	entered, proceed := make(chan struct{}), make(chan struct{})
	w := c.hire2(4, simple("slow", func(_ context.Context, j job.Job) error {
		if j.Queue == "q" {
			close(entered)
			<-proceed
		}
		return nil
	}))
	release := sync.OnceFunc(func() { close(proceed) })
	defer release()
	c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('q', 'slow', '', 1)")
	<-entered
	c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('r', 'slow', '', 1)")
	var got job.Processed
	var err error
	c.untilTrue("a claim that began before is taken back", func() bool {
		got, err = w.Process(t.Context(), 2)
		return got != job.Busy && got != job.NotDue
	})
	if !errors.Is(err, pawl.ErrInProgress) || got != "" {
		t.Errorf("got %q, %v", got, err)
	}
	c.wantCount("select count(*) from pawl.job where id = 2 and status = 'pending' and attempts = 0", 1)
	release()
	c.until("both have ended", "select count(*) from pawl.job", 0)
}

// The only process is killed while it runs jobs, and started again. All jobs are done within the
// time to detect the death plus twice their own, one after the other.
func TestCrash_RestartOfTheOnlyProcess(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"simple", "transactional", "batch"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			const inHand, take = 8, 300 * time.Millisecond
			c := setupCrew(t)
			o := order{Form: form, Lease: 30 * time.Second, Timeout: time.Minute, Concurrency: inHand, Take: take, Quiet: true}
			victim := o
			victim.Take = 30 * time.Second // none of its jobs ends before it dies
			p := c.process(victim)
			c.until("not present", "select count(*) from pawl.worker as w where w.presence", 1)
			c.enqueueMany(inHand, job.Request{})
			c.until("not all processing", "select count(*) from pawl.job where status = 'processing'", inHand)
			p.signal(syscall.SIGKILL)
			p.wait()
			start := time.Now()
			c.process(o)
			bound := 5*time.Second + 2*time.Second + 2*inHand*take + inHand*suspectStep
			c.within(5*bound, "all are done", func() bool { return c.left() == 0 })
			t.Logf("%d jobs of %v, done %v after the restart; the bound is %v", inHand, take, time.Since(start).Round(10*time.Millisecond), bound)
			c.wantCount("select count(*) from pawl.job", 0)
			if form != "simple" { // a simple handler may run twice
				c.wantEffects(inHand)
			}
		})
	}
}

// suspectStep is twice the overhead of a suspect: a claim, two marks and its end.
const suspectStep = 200 * time.Millisecond
