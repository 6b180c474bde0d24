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

// Drained is what a drain did, and what it left.
type Drained struct {
	Done      []DrainedJob // finished, in the order in which their handlers returned
	Retried   []DrainedJob // failed, to be tried again: each attempt that did
	Snoozed   []DrainedJob // given back by [job.Snooze], to wait for their time
	Dead      []DrainedJob // dead letters
	Cancelled []DrainedJob // by [job.Cancel]
	Unknown   []DrainedJob // of which a step of package step may have been executed: they wait for a verdict
	// Left are the jobs of the queues that are still to be worked on: scheduled for later, snoozed, behind a dead letter in their
	// lane, of a paused queue, of a kind without a handler; after [DrainOnce] those to be tried again, too.
	Left []ops.Job
}

// A DrainedJob is a job and how one attempt at it ended.
type DrainedJob struct {
	job.Job
	Err error // what the handler said; nil if it is done
}

// The bounds of one drain.
const (
	drainLimit    = time.Minute
	drainAttempts = 10_000
	drainPoll     = 10 * time.Millisecond
)

// Drain works on the jobs of cfg.Queues, or of the queues of the handlers' definitions, until nothing is to be done: on what is due, on what handlers enqueue meanwhile, and again
// on what fails, until it is done, or a dead letter, or cancelled. It does not wait for a back-off, nor for [job.RetryAfter]: a job
// that is to be tried again is tried at once, so a handler that always fails uses up all of its attempts. See [DrainOnce] to look
// at a job after one of them.
//
// What waits for its time is left: jobs that were enqueued with StartIn, or snoozed. [ops.JobRef.Retry] makes such a job due.
//
// The work is done by a [job.Worker], with cfg's concurrency and batches, on the jobs as the database has them: commit before you
// drain. Only its Poll is 10 ms, and it holds no presence lock.
//
// The test fails if there is still work after 10,000 attempts, as with a handler that enqueues its own kind for ever, or after a
// minute. Errors of handlers do not fail it: look at what is returned.
func Drain(tb testing.TB, pool *pgxpool.Pool, cfg job.Config) Drained {
	tb.Helper()
	return (&drain{limit: drainLimit, most: drainAttempts}).run(tb, pool, cfg)
}

// DrainOnce works as [Drain], but tries no job twice: what fails waits for its next try, as the database has it. It takes one job
// at a time, in the order in which a worker claims them; a handler for many is handed one. [job.Queue.Admit] is not asked.
func DrainOnce(tb testing.TB, pool *pgxpool.Pool, cfg job.Config) Drained {
	tb.Helper()
	return (&drain{limit: drainLimit, most: drainAttempts, once: true}).run(tb, pool, cfg)
}

// A drain is one call of Drain.
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
	returned int            // how many calls have
	ended    Drained

	lastErr lastError
}

// tried is what is known of a job whose handler was called.
type tried struct {
	job  job.Job        // of the last attempt
	turn int            // when its handler returned, among all
	fate pawl.EventKind // of the last attempt; empty: not known, or done
}

func (d *drain) run(tb testing.TB, pool *pgxpool.Pool, cfg job.Config) Drained {
	tb.Helper()
	drained, err := d.work(context.Background(), pool, pool, cfg)
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	return drained
}

// work drains with a worker on a pool of its own, and looks on through another.
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

// config is the worker's: the caller's, watched.
func (d *drain) config(cfg job.Config) job.Config {
	cfg.Queues = slices.Clone(cfg.Queues)
	var handlers []job.Handler
	for _, h := range cfg.Handlers {
		if h != nil { // else the worker refuses it
			handlers = append(handlers, h)
			d.kinds = append(d.kinds, h.Kind())
		}
	}
	if len(cfg.Queues) == 0 { // as a worker has it
		for _, h := range handlers {
			if q := h.Queue(); q != "" && !slices.ContainsFunc(cfg.Queues, func(other job.Queue) bool { return other.Name == q }) {
				cfg.Queues = append(cfg.Queues, job.Queue{Name: q})
			}
		}
	}
	for i, q := range cfg.Queues {
		d.queues = append(d.queues, q.Name)
		if d.once {
			cfg.Queues[i].Admit = func() int { return 0 } // each job is asked for by its id
		}
	}
	cfg.Poll, cfg.Presence = drainPoll, job.Presence{Off: true}
	cfg.Middleware = append([]job.Middleware{d.call}, cfg.Middleware...)
	cfg.Hooks = pawl.Join(cfg.Hooks, pawl.Hooks{OnEvent: d.event}, pawl.Hooks{OnEvent: d.lastErr.event})
	return cfg
}

// call watches a call of a handler. What it ends with is told by an event, unless its jobs are done.
func (d *drain) call(ctx context.Context, c job.Call, next func(context.Context) error) error {
	d.mu.Lock()
	for _, j := range c.Jobs {
		t := d.tried[j.ID]
		if t == nil {
			t = &tried{}
			d.tried[j.ID] = t
		}
		if t.job.Fence != j.Fence { // else the same attempt once more, in a smaller batch
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

// event notes how an attempt has ended badly. It comes after the database was told.
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
	a.Attempt = e.Attempt // the next one may have begun
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

// untilIdle sees to it that all is done that is to be done, and returns the jobs that are still there.
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
			return nil, fmt.Errorf("after %d attempts (%s) there is still work: does a handler enqueue its own kind for ever?%s", n, byKind, listed(work))
		}
		for _, j := range asked {
			if d.last(j.ID).job.Fence > j.Fence {
				continue // it was tried since the look
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

// todo returns the jobs on which there is work, and those among them that the worker does not take
// by itself.
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
	slices.SortStableFunc(asked, func(a, b ops.Job) int { // as job_claim
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
	case t.job.ID != 0 && t.fate == "": // how it ended is about to be told
		return true, false
	}
	work = !d.once && t.fate != pawl.EventSnoozed && j.Attempts > 0
	return work, work && j.AvailableAt.Sub(j.ReadAt) > dueSoon
}

// dueSoon is how long a retry is waited for. What is due sooner is left to the worker: it might take the job and snooze it between our look and
// our request, which would then run it once more.
const dueSoon = time.Second

// process has the worker try one job: by its id, or, for a retry, by making it due. Whatever comes
// of it, the database is asked next. A worker that is not running yet is no error.
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

// made says how many attempts there were, by kind.
func (d *drain) made() (n int, byKind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, some := range d.attempts {
		n += some
	}
	return n, fmt.Sprint(d.attempts)
}

// overdue explains why a drain was given up.
func (d *drain) overdue(ctx context.Context, work []ops.Job, err error) error {
	if ctx.Err() == nil {
		return err
	}
	n, byKind := d.made()
	return fmt.Errorf("after %v and %d attempts (%s) there is still work:%s%s", d.limit, n, byKind, listed(work), &d.lastErr)
}

// result is told when the worker has stopped: nothing is under way any more, but for handlers that ignore the end of their context.
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
		if !still[id] && t.fate != pawl.EventFailed && t.fate != pawl.EventCancelled { // else it was discarded since
			done = append(done, *t)
		}
	}
	slices.SortFunc(done, func(a, b tried) int { return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.job.ID, b.job.ID)) })
	for _, t := range done {
		d.ended.Done = append(d.ended.Done, DrainedJob{Job: t.job})
	}
	return d.ended
}

// String tells all of it, for messages.
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
