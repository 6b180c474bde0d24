package pawltest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
)

// Drained is the result of a drain.
type Drained struct {
	Done      []DrainedJob // finished, in the order in which their handlers returned
	Retried   []DrainedJob // each attempt that failed and will be retried
	Snoozed   []DrainedJob // released by [job.Snooze] until a later time
	Dead      []DrainedJob // dead letters
	Cancelled []DrainedJob // by [job.Cancel]
	// Unknown are attempts of which a step may have been executed. The jobs wait until you resolve
	// them.
	Unknown []DrainedJob
	// Left are the jobs in the queues that have not ended: scheduled for later, snoozed, behind a
	// dead letter in their lane, in a paused queue, or of a kind without a handler. After
	// [DrainOnce] they include those to be retried.
	Left []ops.Job
}

// A DrainedJob is a job and the outcome of one attempt.
type DrainedJob struct {
	job.Job
	Err error // the handler's error; nil if it succeeded
}

// Limits of one drain.
const (
	drainLimit    = time.Minute
	drainAttempts = 10_000
	drainPoll     = 10 * time.Millisecond
)

// Drain runs the jobs of cfg.Queues, or of the queues in the handlers' definitions, until none is
// left that can run now. It runs due jobs and those that handlers enqueue, and retries failed jobs
// until they are done, dead letters or cancelled. It retries at once, without waiting for a
// back-off or [job.RetryAfter]. So a handler that always fails uses up all of its attempts. To
// inspect a job after one attempt, use [DrainOnce].
//
// Jobs that were enqueued with StartIn or snoozed are left. [ops.JobRef.Retry] makes one due.
//
// A [job.Worker] runs the jobs, with cfg's concurrency and batches. It sees committed jobs only, so
// commit before you drain. Its Poll is 10 ms, and it holds no presence lock.
//
// The test fails if there is still work after 10,000 attempts, as with a handler that enqueues its
// own kind forever, or after a minute. Handlers' errors do not fail the test; check the result.
func Drain(tb testing.TB, pool *pgxpool.Pool, cfg job.Config) Drained {
	tb.Helper()
	return (&drain{limit: drainLimit, most: drainAttempts}).run(tb, pool, cfg)
}

// DrainOnce works as [Drain], but tries each job once. A failed job waits for its next attempt.
// DrainOnce runs one job at a time, in the order in which a worker claims them; a batch handler
// gets batches of one. It does not call [job.Queue.Admit].
func DrainOnce(tb testing.TB, pool *pgxpool.Pool, cfg job.Config) Drained {
	tb.Helper()
	return (&drain{limit: drainLimit, most: drainAttempts, once: true}).run(tb, pool, cfg)
}

type drain struct {
	limit time.Duration
	most  int
	once  bool

	pool   *pgxpool.Pool
	worker *job.Worker
	queues []string
	kinds  []string

	mu       sync.Mutex
	tried    map[int64]*tried
	attempts map[string]int // by kind
	returned int            // number of calls that returned
	ended    Drained

	lastErr lastError
}

// tried is the state of a job whose handler was called.
type tried struct {
	job  job.Job // of the last attempt
	turn int     // its handler's position in the order of returns
	// fate is the outcome of the last attempt. Empty: not known, or done.
	fate pawl.EventKind
}

func (d *drain) run(tb testing.TB, pool *pgxpool.Pool, cfg job.Config) Drained {
	tb.Helper()
	drained, err := d.work(context.Background(), pool, pool, cfg)
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	return drained
}

// work runs a worker on its own pool, and queries the state through eyes.
func (d *drain) work(ctx context.Context, own, eyes *pgxpool.Pool, cfg job.Config) (Drained, error) {
	d.pool, d.tried, d.attempts = eyes, map[int64]*tried{}, map[string]int{}
	var err error
	if d.worker, err = job.NewWorker(own, d.config(cfg)); err != nil {
		return Drained{}, err
	}
	var left []ops.Job
	err = whileRunning(ctx, d.worker.Run, d.limit, func(ctx context.Context) (err error) {
		left, err = d.untilIdle(ctx)
		return err
	})
	if err != nil {
		return Drained{}, err
	}
	return d.result(left), nil
}

// config returns the worker's configuration: the caller's with the drain's hooks.
func (d *drain) config(cfg job.Config) job.Config {
	cfg.Queues = slices.Clone(cfg.Queues)
	var handlers []job.Handler
	for _, h := range cfg.Handlers {
		if h != nil { // NewWorker refuses nil
			handlers = append(handlers, h)
			d.kinds = append(d.kinds, h.Kind())
		}
	}
	// The same default as a worker's.
	if len(cfg.Queues) == 0 {
		for _, h := range handlers {
			if q := h.Queue(); q != "" && !slices.ContainsFunc(cfg.Queues, func(other job.Queue) bool { return other.Name == q }) {
				cfg.Queues = append(cfg.Queues, job.Queue{Name: q})
			}
		}
	}
	for i, q := range cfg.Queues {
		d.queues = append(d.queues, q.Name)
		if d.once {
			// Process requests each job by its id.
			cfg.Queues[i].Admit = func() int { return 0 }
		}
	}
	cfg.Poll, cfg.Presence = drainPoll, job.Presence{Off: true}
	cfg.Middleware = append([]job.Middleware{d.call}, cfg.Middleware...)
	cfg.Hooks = pawl.Join(cfg.Hooks, pawl.Hooks{OnEvent: d.event}, pawl.Hooks{OnEvent: d.lastErr.event})
	return cfg
}

// call records a call of a handler. An event reports its outcome, unless its jobs are done.
func (d *drain) call(ctx context.Context, c job.Call, next func(context.Context) error) error {
	d.mu.Lock()
	for _, j := range c.Jobs {
		t := d.tried[j.ID]
		if t == nil {
			t = &tried{}
			d.tried[j.ID] = t
		}
		// An equal fence is the same attempt again, in a smaller batch.
		if t.job.Fence != j.Fence {
			d.attempts[j.Kind]++
		}
		t.job, t.fate = j, ""
	}
	d.mu.Unlock()
	defer func() { // also if it panics
		d.mu.Lock()
		defer d.mu.Unlock()
		d.returned++
		for _, j := range c.Jobs {
			d.tried[j.ID].turn = d.returned
		}
	}()
	return next(ctx)
}

// event records an attempt that did not succeed. It comes after the database holds the outcome.
func (d *drain) event(_ context.Context, e pawl.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tried[e.JobID]
	if e.Op != "job.fail" || t == nil {
		return
	}
	if t.job.Attempt == e.Attempt {
		t.fate = e.Kind
	}
	a := DrainedJob{t.job, e.Err}
	// The next attempt may have begun.
	a.Attempt = e.Attempt
	switch e.Kind {
	case pawl.EventRetryable:
		d.ended.Retried = append(d.ended.Retried, a)
	case pawl.EventSnoozed:
		d.ended.Snoozed = append(d.ended.Snoozed, a)
	case pawl.EventFailed:
		d.ended.Dead = append(d.ended.Dead, a)
	case pawl.EventCancelled:
		d.ended.Cancelled = append(d.ended.Cancelled, a)
	case pawl.EventUnknown:
		d.ended.Unknown = append(d.ended.Unknown, a)
	}
}

// untilIdle waits until no work is left, and returns the jobs that are still there.
func (d *drain) untilIdle(ctx context.Context) (there []ops.Job, err error) {
	for work, asked := []ops.Job(nil), []ops.Job(nil); ; {
		began := time.Now()
		s, err := look(ctx, d.pool, d.queues)
		if err != nil {
			return nil, d.overdue(ctx, work, err)
		}
		if work, asked = d.todo(s); len(work) == 0 {
			return s.jobs, nil
		}
		if n, byKind := d.made(); n > d.most {
			return nil, fmt.Errorf("after %d attempts (%s) there is still work: does a handler enqueue its own kind forever?%s", n, byKind, listed(work))
		}
		for _, j := range asked {
			if d.last(j.ID).job.Fence > j.Fence {
				continue // tried since the snapshot
			}
			if err := d.process(ctx, j); err != nil {
				return nil, d.overdue(ctx, work, err)
			}
		}
		if !pace.Sleep(ctx, max(5*time.Millisecond, time.Since(began))) {
			return nil, d.overdue(ctx, work, ctx.Err())
		}
	}
}

// todo returns the jobs that are work, and those of them that the worker does not take by itself.
func (d *drain) todo(s standing) (work, asked []ops.Job) {
	for _, j := range s.jobs {
		is, ask := d.needs(s, j)
		if is {
			work = append(work, j)
		}
		if ask {
			asked = append(asked, j)
		}
	}
	slices.SortStableFunc(asked, func(a, b ops.Job) int { // in the order of job_claim
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.AvailableAt.Compare(b.AvailableAt))
	})
	return work, asked
}

func (d *drain) needs(s standing, j ops.Job) (work, ask bool) {
	t := d.last(j.ID)
	switch {
	case !slices.Contains(d.kinds, j.Kind), j.Status == ops.StatusPending && !s.claimable(j):
		return false, false
	case j.Status != ops.StatusPending:
		return s.moves(j), false
	case due(j):
		work = !d.once || t.fate == ""
		return work, work && d.once
	case t.job.ID != 0 && t.fate == "": // the event with its outcome is still to come
		return true, false
	}
	work = !d.once && t.fate != pawl.EventSnoozed && j.Attempts > 0
	return work, work && j.AvailableAt.Sub(j.ReadAt) > dueSoon
}

// dueSoon is how soon a retry must be due for the drain to wait for it. The worker might take and
// snooze such a job between our snapshot and our request. The request would then run it once more.
const dueSoon = time.Second

// process makes the worker try one job: by its id, or for a retry by making it due. A worker that
// is not running yet is no error, because the caller queries the database again.
func (d *drain) process(ctx context.Context, j ops.Job) (err error) {
	if d.once {
		_, err = d.worker.Process(ctx, j.ID)
	} else {
		_, err = job.Reschedule(ctx, d.pool, j.ID, 0)
		d.worker.Kick()
	}
	if pawl.Retryable(err) {
		return nil
	}
	return err
}

func (d *drain) last(id int64) tried {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tried[id]; t != nil {
		return *t
	}
	return tried{}
}

func (d *drain) made() (n int, byKind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, some := range d.attempts {
		n += some
	}
	return n, fmt.Sprint(d.attempts)
}

// overdue returns the error of a drain that exceeded its limits, or err if ctx has not ended.
func (d *drain) overdue(ctx context.Context, work []ops.Job, err error) error {
	if ctx.Err() == nil {
		return err
	}
	n, byKind := d.made()
	return fmt.Errorf("after %v and %d attempts (%s) there is still work:%s%s", d.limit, n, byKind, listed(work), &d.lastErr)
}

// result is called after the worker stopped. Only handlers that ignore their context still run.
func (d *drain) result(there []ops.Job) Drained {
	d.mu.Lock()
	defer d.mu.Unlock()
	still := map[int64]bool{}
	for _, j := range there {
		still[j.ID] = true
		switch j.Status {
		case ops.StatusPending, ops.StatusWaiting, ops.StatusProcessing:
			d.ended.Left = append(d.ended.Left, j)
		}
	}
	var done []tried
	for id, t := range d.tried {
		// A dead or cancelled job that is gone was discarded.
		if !still[id] && t.fate != pawl.EventFailed && t.fate != pawl.EventCancelled {
			done = append(done, *t)
		}
	}
	slices.SortFunc(done, func(a, b tried) int { return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.job.ID, b.job.ID)) })
	for _, t := range done {
		d.ended.Done = append(d.ended.Done, DrainedJob{Job: t.job})
	}
	return d.ended
}

// String lists the result for messages.
func (d Drained) String() string {
	text := fmt.Sprintf("%d done", len(d.Done))
	for _, part := range []struct {
		name     string
		attempts []DrainedJob
	}{{"retried", d.Retried}, {"snoozed", d.Snoozed}, {"dead", d.Dead}, {"cancelled", d.Cancelled}, {"unknown", d.Unknown}} {
		if len(part.attempts) > 0 {
			text += fmt.Sprintf(", %d %s", len(part.attempts), part.name)
		}
		for _, a := range part.attempts {
			text += fmt.Sprintf("\n\tjob %d (%s), attempt %d: %v", a.ID, a.Kind, a.Attempt, a.Err)
		}
	}
	if len(d.Left) > 0 {
		text += fmt.Sprintf(", %d left:%s", len(d.Left), listed(d.Left))
	}
	return text
}
