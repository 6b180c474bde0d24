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

// None of the tests of this file is parallel but those with processes of their own: the gate is the process's, and other tests' handlers
// would be company.

// healthyWait is what healthy work may wait for suspects in a row, and what a busy machine needs for the rest of it.
const healthyWait = solo.AloneWait + solo.AloneFor + 45*time.Second

// hire2 starts a worker of the queues q, with the given slots, and r, with four, for some simple handlers.
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

// within requires something of this process in time.
func (c *crew) within(limit time.Duration, what string, reached func() bool) {
	c.Helper()
	patience.Within(c, limit, what, reached)
}

// Process takes its slot first: beside a suspect that has the only one, both go on.
func TestProcess_WaitsForASlotOutsideOfTheGate(t *testing.T) {
	c := setupCrew(t)
	var ran atomic.Int32
	w := c.hire2(1, simple("k", func(context.Context, job.Job) error {
		ran.Add(1)
		patience.Elapse(50 * time.Millisecond)
		return nil
	}))
	for round := range 5 {
		before := ran.Load()
		c.enqueue(job.Request{Queue: "q", Kind: "k"}) // has the only slot
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

// Process claims nothing before it has a slot: what waits for one is not in hand, and not in a suspect's way.
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
	for limit := time.Second; ; limit *= 2 { // a busy machine may not come to the slot in time
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

// Process waits for its slot outside of the gate: a suspect that waits to be alone is not in its company.
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
	for round := int32(1); round <= 10 && alone.Load() == 0; round++ { // on a busy machine what holds the slot may not leave in time
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
		patience.Elapse(500 * time.Millisecond) // that it waits is not seen from here; where it does not yet, this round shows nothing
		c.exec("insert into pawl.job (queue, kind, payload, crashes) values ('r', 'suspect', '', 1)")
		c.within(3*healthyWait, "the suspect runs", func() bool { return ran.Load() == round })
		patience.Receive(t, "Process returns", answered)
		c.until("all finished", "select count(*) from pawl.job", 0)
	}
	if alone.Load() == 0 {
		t.Error("no suspect was alone while a call of Process waited for a slot")
	}
}

// Handlers that last do not make other queues wait for a suspect, be it that they ignore their context or may run for an hour; nor
// does the suspect wait for them.
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

// A suspect that does not return stops nobody for longer than it may be alone, and the next suspect for as long as its own limit.
func TestSuspect_WhoHangsStopsNobody(t *testing.T) {
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

// All slots are held for long, in every queue of the process: who is behind them waits for a slot, as always, and for no suspect.
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

// Two suspects of one process are never in hand together, whichever queues and workers they are of, and none starves.
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
		t.Errorf("%d suspects ran in the company of another", together.Load())
	}
	c.until("all finished", "select count(*) from pawl.job", 0)
}

// While the database counts a suspect as alone nothing else is in hand: it is told before the suspect begins, and told otherwise before
// anything enters.
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
		told.Add(marked(ctx)) // not of one whose company did not leave in time
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

// If the database cannot be told that a suspect is alone no more, healthy work waits no longer for it, and the database is told later.
func TestSuspect_MarkThatCannotBeClearedStopsNobody(t *testing.T) {
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
	_, err := tx.Exec(t.Context(), "select from pawl.worker for no key update") // as somebody who looks at it with psql
	c.must(err)
	c.exec("select pawl_v1.job_enqueue('r', 'fast', '')")
	c.within(healthyWait, "healthy work goes on", func() bool { return fast.Load() == 1 })
	c.within(healthyWait, "the error is told", func() bool { return c.saw(pawl.EventError, "worker.isolate") > 0 })
	c.wantCount("select count(*) from pawl.worker where alone_job is not null", 1)
	c.must(tx.Rollback(t.Context()))
	c.until("the mark stands", "select count(*) from pawl.worker where alone_job is not null", 0)
}

// A worker that is asked for a suspect by its id while it has another says so, and the job stays uncharged.
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

// The only process is killed with jobs in hand and started again. All are done within the time that it takes to be sure of the death,
// and twice their own, one after the other.
func TestCrash_RestartOfTheOnlyProcess(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"simple", "transactional", "batch"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			const inHand, take = 8, 300 * time.Millisecond
			c := setupCrew(t)
			o := order{Form: form, Lease: 30 * time.Second, Timeout: time.Minute, Concurrency: inHand, Take: take, Quiet: true}
			victim := o
			victim.Take = 30 * time.Second // none of its jobs ends before it does
			p := c.process(victim)
			c.until("not present", "select count(*) from pawl.worker as w where w.presence", 1)
			c.enqueueMany(inHand, job.Request{})
			c.until("not all in hand", "select count(*) from pawl.job where status = 'processing'", inHand)
			p.signal(syscall.SIGKILL)
			p.wait()
			start := time.Now()
			c.process(o)
			bound := 5*time.Second + 2*time.Second + 2*inHand*take + inHand*suspectStep
			c.within(5*bound, "all are done", func() bool { return c.left() == 0 })
			t.Logf("%d jobs of %v, done %v after the restart; the bound is %v", inHand, take, time.Since(start).Round(10*time.Millisecond), bound)
			c.wantCount("select count(*) from pawl.job", 0)
			if form != "simple" { // which may run twice: its effect is not its end
				c.wantEffects(inHand)
			}
		})
	}
}

// suspectStep is what a suspect costs beside its own time, twice: a claim, two marks, and its end.
const suspectStep = 200 * time.Millisecond
