package job_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// A mail is a payload type.
type mail struct {
	To string `json:"to"`
}

// handlerOf makes a handler of the form. It applies the job's effect and returns verdict's error.
// The forms "simple", "many" and "call" run verdict first.
func (c *crew) handlerOf(form string, verdict func(job.Job) error) job.Handler {
	type task = job.Task[[]byte]
	switch form {
	case "simple":
		return job.Handle("k", func(ctx context.Context, t task) error {
			if err := verdict(t.Job); err != nil {
				return err
			}
			return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return apply(ctx, tx, t.Job) })
		})
	case "many":
		return job.HandleMany("k", func(ctx context.Context, ts []task) []error {
			errs := make([]error, len(ts))
			for i, t := range ts {
				if errs[i] = verdict(t.Job); errs[i] == nil {
					errs[i] = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return apply(ctx, tx, t.Job) })
				}
			}
			return errs
		})
	case "batch":
		return job.HandleManyTx("k", func(ctx context.Context, tx pgx.Tx, ts []task) error {
			for _, t := range ts {
				if err := errors.Join(apply(ctx, tx, t.Job), verdict(t.Job)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	none := func(context.Context, task) (int, error) { return 0, nil }
	switch form {
	case "sql":
		return job.HandleSQL("k", func(ctx context.Context, tx *sql.Tx, t task) error {
			return errors.Join(applySQL(ctx, tx, t.Job), verdict(t.Job))
		})
	case "sql batch":
		return job.HandleManySQL("k", func(ctx context.Context, tx *sql.Tx, ts []task) error {
			for _, t := range ts {
				if err := errors.Join(applySQL(ctx, tx, t.Job), verdict(t.Job)); err != nil {
					return err
				}
			}
			return nil
		})
	case "call":
		return job.HandleThenTx(octets, func(_ context.Context, t task) (int, error) { return 0, verdict(t.Job) },
			func(ctx context.Context, tx pgx.Tx, t task, _ int) error { return apply(ctx, tx, t.Job) })
	case "then":
		return job.HandleThenTx(octets, none, func(ctx context.Context, tx pgx.Tx, t task, _ int) error {
			return errors.Join(apply(ctx, tx, t.Job), verdict(t.Job))
		})
	case "sql then":
		return job.HandleThenSQL(octets, none, func(ctx context.Context, tx *sql.Tx, t task, _ int) error {
			return errors.Join(applySQL(ctx, tx, t.Job), verdict(t.Job))
		})
	}
	return job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, t task) error {
		return errors.Join(apply(ctx, tx, t.Job), verdict(t.Job))
	})
}

func applySQL(ctx context.Context, tx *sql.Tx, j job.Job) error {
	_, err := tx.ExecContext(ctx, "insert into effect values ($1)", j.ID)
	return err
}

var forms = []string{"simple", "transactional", "batch", "sql", "sql batch", "call", "then", "sql then"}

// In every form, the handler's error has its documented effect, and the attempt leaves no rows.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, form := range forms {
		for name, v := range map[string]struct {
			err  error
			want string // status, attempts, number of errors, minutes until the next attempt
			kind pawl.EventKind
		}{
			"retry after": {job.RetryAfter(time.Hour, boom), "pending 1 1 60", pawl.EventRetryable},
			"snooze":      {job.Snooze(time.Hour), "pending 0 0 60", pawl.EventSnoozed},
			"wait":        {job.WaitFor("the payment", time.Hour, 24*time.Hour), "pending 0 1 60", pawl.EventSnoozed},
			"short wait":  {job.WaitFor("the payment", 24*time.Hour, time.Hour), "pending 0 1 60", pawl.EventSnoozed},
			"final wait":  {pawl.Final(job.WaitFor("the payment", time.Hour, time.Hour)), "dead_letter 1 1 0", pawl.EventFailed},
			"cancel":      {job.Cancel(boom), "cancelled 1 1 0", pawl.EventCancelled},
			"final":       {pawl.Final(boom), "dead_letter 1 1 0", pawl.EventFailed},
			"final wins":  {pawl.Final(job.Snooze(time.Hour)), "dead_letter 1 1 0", pawl.EventFailed},
			"wrapped":     {errors.Join(errors.New("while mailing"), job.RetryAfter(time.Hour, boom)), "pending 1 1 60", pawl.EventRetryable},
			"check":       {&pawl.Error{Code: "23514", Err: boom}, "dead_letter 1 1 0", pawl.EventFailed},
			"known key":   {fmt.Errorf("of another job: %w", pawl.ErrKeyReused), "dead_letter 1 1 0", pawl.EventFailed},
			"fence":       {job.RetryAfter(time.Hour, fmt.Errorf("of something else: %w", pawl.ErrFenceLost)), "pending 1 1 60", pawl.EventRetryable},
		} {
			t.Run(form+" "+name, func(t *testing.T) {
				t.Parallel()
				c := setupCrew(t)
				c.handlers = []job.Handler{c.handlerOf(form, func(job.Job) error { return v.err })}
				c.enqueueMany(1, job.Request{})
				c.hire()
				c.untilTrue(string(v.kind), func() bool { return c.counters.Count(v.kind) == 1 })
				c.wantText(`select concat_ws(' ', j.status, j.attempts, coalesce(jsonb_array_length(j.last_errors), 0),
       case when j.status = 'pending' then round(extract(epoch from j.available_at - now()) / 60) else 0 end)
  from pawl.job as j`, v.want)
				c.wantEffects(0)
			})
		}
	}
}

// A handler gets the decoded payload and the enqueuer's trace. Bad JSON is dead-lettered at once.
func TestHandle_DecodesThePayload(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	var to, parent atomic.Value
	c.handlers = []job.Handler{job.Handle("k", func(ctx context.Context, t job.Task[mail]) error {
		to.Store(t.Value.To)
		parent.Store(pawl.TraceOf(ctx).Parent)
		return nil
	})}
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traced := pawl.WithTrace(t.Context(), pawl.Trace{Parent: trace, State: "vendor=1"})
	_, err := job.Enqueue(traced, c.pool, job.Request{Queue: "q", Kind: "k", Value: mail{To: "ada@example.org"}})
	c.must(err)
	c.hire()
	c.untilDone()
	if to.Load() != "ada@example.org" || parent.Load() != trace {
		t.Errorf("handled %v in trace %v", to.Load(), parent.Load())
	}
	c.enqueueMany(1, job.Request{Payload: []byte("{")})
	c.untilTrue("a dead letter", func() bool { return c.counters.Count(pawl.EventFailed) == 1 })
	c.wantDeadLetter(1, "does not fit job_test.mail")
	c.exec("delete from pawl.job")
	c.enqueueMany(1, job.Request{Payload: []byte(" null\n")})
	c.untilTrue("another dead letter", func() bool { return c.counters.Count(pawl.EventFailed) == 2 })
	c.wantDeadLetter(1, "it cannot be null")
}

// A worker's events about a job name its kind.
func TestWorker_EventsNameTheKind(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.handlers = []job.Handler{simple("k", func(_ context.Context, j job.Job) error {
		if string(j.Payload) == "bad" {
			return pawl.Final(errors.New("no"))
		}
		return nil
	})}
	c.hire()
	c.enqueueMany(1, job.Request{Payload: []byte("good")})
	c.enqueueMany(1, job.Request{Payload: []byte("bad")})
	c.untilTrue("both have ended", func() bool {
		return c.counters.Count(pawl.EventSucceeded) == 1 && c.counters.Count(pawl.EventFailed) == 1
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.JobID != 0 && e.JobKind != "k" {
			t.Errorf("%s %s of job %d names the kind %q", e.Kind, e.Op, e.JobID, e.JobKind)
		}
	}
}

// A call for one job has that job's trace. A call for several has none.
func TestHandleManyTx_ManyJobsHaveNoTrace(t *testing.T) {
	t.Parallel()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-%016d-01"
	c := setupCrew(t)
	var mu sync.Mutex
	// own holds the traces of the jobs, around those of the calls, by their number of jobs.
	own, around := map[string]bool{}, map[int]string{}
	c.handlers = []job.Handler{job.HandleManyTx("k", func(ctx context.Context, _ pgx.Tx, ts []job.Task[[]byte]) error {
		mu.Lock()
		defer mu.Unlock()
		around[len(ts)] = pawl.TraceOf(ctx).Parent
		for _, t := range ts {
			own[t.Trace().Parent] = true
		}
		return nil
	})}
	enqueue := func(n int) {
		t.Helper()
		ctx := pawl.WithTrace(t.Context(), pawl.Trace{Parent: fmt.Sprintf(trace, n)})
		_, err := job.Enqueue(ctx, c.pool, job.Request{Queue: "q", Kind: "k"})
		c.must(err)
	}
	enqueue(1)
	enqueue(2)
	c.hire()
	c.untilDone()
	enqueue(3)
	c.untilDone()
	mu.Lock()
	defer mu.Unlock()
	if around[2] != "" || around[1] != fmt.Sprintf(trace, 3) || len(own) != 3 || own[""] {
		t.Errorf("calls by size in the traces %v, jobs in %v", around, own)
	}
}

// A batch gets its jobs sorted, in calls of at most BatchSize, and their effects commit together.
func TestHandleManyTx_CommitsTogether(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, "alter table effect add column xid xid8 default pg_current_xact_id()")
	var calls, most atomic.Int32
	c.handlers = []job.Handler{job.HandleManyTx("k", func(ctx context.Context, tx pgx.Tx, ts []job.Task[[]byte]) error {
		calls.Add(1)
		most.Store(max(most.Load(), int32(len(ts))))
		if !slices.IsSortedFunc(ts, func(a, b job.Task[[]byte]) int { return int(a.ID - b.ID) }) {
			t.Error("a batch is not sorted")
		}
		for _, task := range ts {
			if _, err := tx.Exec(ctx, "insert into effect values ($1)", task.ID); err != nil {
				return err
			}
		}
		return nil
	}).With(job.ManyPolicy{BatchSize: 50})}
	c.enqueueMany(500, job.Request{})
	c.hire()
	c.untilDone()
	c.wantEffects(500)
	// 10 calls, unless slow claims run in the background.
	if most.Load() != 50 || calls.Load() > 50 {
		t.Errorf("%d calls, the largest with %d jobs", calls.Load(), most.Load())
	}
	c.wantCount("select count(distinct xid) from effect", int(calls.Load()))
}

// Jobs that fail alone do not charge their batch. It runs again in halves, only the failing jobs
// are charged, and the others take effect once.
func TestHandleManyTx_ChargesOnlyWhatFails(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.handlers = []job.Handler{c.handlerOf("batch", func(j job.Job) error {
		if string(j.Payload) == poison {
			return errors.New("cannot be done")
		}
		return nil
	})}
	c.enqueueMany(60, job.Request{MaxAttempts: 1})
	c.enqueueMany(2, job.Request{MaxAttempts: 1, Payload: []byte(poison)})
	c.enqueueMany(38, job.Request{MaxAttempts: 1})
	c.hire()
	c.untilDone()
	c.wantEffects(98)
	c.wantCount("select count(*) from pawl.job where status = 'dead_letter' and payload = 'poison' and attempts = 1", 2)
}

// A job whose row is locked is left out of its batch and released uncharged.
func TestHandleManyTx_LeavesOutWhatIsLocked(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(10, job.Request{MaxAttempts: 1})
	p := c.process(order{Form: "batch", Concurrency: 10, Lease: 20 * time.Second, Faults: "job.hold.before=stop"})
	p.untilStopped() // between claim and hold
	tx := c.begin()
	_, err := tx.Exec(t.Context(), "select from pawl.job where id = 5 for update")
	c.must(err)
	p.wake()
	c.until("the others are not done", "select count(*) from effect", 9)
	c.must(tx.Rollback(t.Context()))
	c.untilDone()
	c.wantEffects(10)
}

// A simple handler may end its job in its own transaction, with pgx or database/sql. Its effect and
// the end commit together. If it returns nil without a commit, the job runs again.
func TestHandle_OwnTransaction(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "database/sql"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			standard := stdlib.OpenDBFromPool(c.pool)
			var calls atomic.Int32
			c.handlers = []job.Handler{job.Handle("k", func(ctx context.Context, t job.Task[[]byte]) (err error) {
				var tx pawl.Tx
				if driver == "pgx" {
					tx, err = c.pool.Begin(ctx)
				} else {
					s, e := standard.BeginTx(ctx, nil)
					tx, err = pawl.SQLTx(s), e
				}
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback(ctx) }()
				var one int
				if err := errors.Join(t.Hold(ctx, tx),
					tx.QueryRow(ctx, "insert into effect values ($1) returning 1", t.ID).Scan(&one), t.Finish(ctx, tx)); err != nil {
					return err
				}
				if calls.Add(1) == 1 {
					return nil // a mistake: nothing is committed
				}
				return tx.Commit(ctx)
			})}
			c.enqueueMany(3, job.Request{})
			c.hire()
			c.untilDone()
			c.wantEffects(3)
			c.untilTrue("three reported succeeded", func() bool { return c.saw(pawl.EventSucceeded, "job.finish") == 3 })
			if calls.Load() != 4 || c.saw(pawl.EventWastedWork, "job.finish") != 1 {
				t.Errorf("%d calls, %d wasted", calls.Load(), c.counters.Count(pawl.EventWastedWork))
			}
		})
	}
}

// Simple jobs need no connection each, and are finished in batches.
func TestHandle_FinishesInBatches(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	var calls atomic.Int32
	c.handlers = []job.Handler{job.Handle("k", func(context.Context, job.Task[[]byte]) error { calls.Add(1); return nil })}
	c.concurrency = 400
	many := make([]job.Request, 2000)
	for i := range many {
		many[i] = job.Request{Queue: "q", Kind: "k"}
	}
	_, err := job.EnqueueMany(t.Context(), c.pool, many)
	c.must(err)
	c.hire()
	c.untilDone()
	if calls.Load() != 2000 {
		t.Errorf("%d calls", calls.Load())
	}
	c.wantCount("select count(*) from pawl.job", 0)
}

// Middleware runs around every call, the first outermost, in the handler's transaction.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, "create table trail (who text not null)")
	note := func(who string) job.Middleware {
		return func(ctx context.Context, call job.Call, next func(context.Context) error) error {
			if _, err := call.Tx.Exec(ctx, "insert into trail values ($1)", call.Kind+who); err != nil {
				return err
			}
			return next(ctx)
		}
	}
	var calls atomic.Int32
	c.config.Middleware = []job.Middleware{note("1"), note("2")}
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if calls.Add(1) == 1 {
			return errors.New("not yet")
		}
		return apply(ctx, tx, j)
	}
	c.enqueueMany(1, job.Request{})
	c.hire()
	c.untilDone()
	c.wantEffects(1)
	c.wantText("select string_agg(who, ',') from trail", "k1,k2")
}

// A worker serves several queues with their own Concurrency, and leaves unknown kinds pending.
func TestWorker_QueuesAndKinds(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	config := c.complete()
	config.Queues = []job.Queue{{Name: "q", Concurrency: 1}, {Name: "other", Concurrency: 2}}
	w, err := job.NewWorker(c.pool, config)
	c.must(err)
	c.enqueue(job.Request{Queue: "q", Kind: "unknown"})
	c.enqueueMany(5, job.Request{})
	for range 5 {
		c.enqueue(job.Request{Queue: "other", Kind: "k"})
	}
	c.run(w)
	c.until("known kinds are left", "select count(*) from pawl.job", 1)
	c.wantEffects(10)
	c.wantText("select kind || ' ' || status || ' ' || fence from pawl.job", "unknown pending 0")
}

// Process runs a job by its id once. Otherwise its result says why the job did not run.
func TestWorker_Process(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	config := c.complete()
	config.Queues[0].Admit = func() int { return 0 } // it claims no job by itself
	w, err := job.NewWorker(c.pool, config)
	c.must(err)
	if _, err := w.Process(t.Context(), 1); !pawl.Retryable(err) {
		t.Errorf("not running: %v", err)
	}
	c.run(w)
	c.until("no worker", "select count(*) from pawl.worker", 1)
	process := func(id int64) (got job.Processed) {
		t.Helper()
		c.untilTrue("the worker runs", func() bool {
			var err error
			got, err = w.Process(t.Context(), id)
			if err != nil && !pawl.Retryable(err) {
				t.Fatal(err)
			}
			return err == nil
		})
		return got
	}
	if got := process(12345); got != job.Absent {
		t.Errorf("a job that never was: %s", got)
	}
	c.until("rest", "select count(*) from pawl.job", 0)
	due := c.enqueue(job.Request{Queue: "q", Kind: "k"}).ID
	if got := process(due); got != job.Done {
		t.Errorf("a due job: %s", got)
	}
	c.wantEffects(1)
	later := c.enqueue(job.Request{Queue: "q", Kind: "k", StartIn: time.Hour}).ID
	if got := process(later); got != job.NotDue {
		t.Errorf("a later job: %s", got)
	}
	if changed, err := job.Reschedule(t.Context(), c.pool, later, 0); !changed.Done || err != nil {
		t.Errorf("%+v, %v", changed, err)
	}
	if got := process(later); got != job.Done {
		t.Errorf("a later job, due now: %s", got)
	}
	c.wantEffects(2)
	foreign := c.enqueue(job.Request{Queue: "elsewhere", Kind: "k"}).ID
	if _, err := w.Process(t.Context(), foreign); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("another queue's job: %v", err)
	}
	c.wantCount("select count(*) from pawl.job where queue = 'elsewhere' and status = 'pending' and attempts = 0", 1)
	c.wantEffects(2)
}

// An outage of another system is charged, even if its error looks like one of the database.
func TestHandle_ForeignOutageIsCharged(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.handlers = []job.Handler{job.Handle("k", func(context.Context, job.Task[[]byte]) error {
		return errors.New("Post https://api.example.org: connection reset by peer")
	})}
	c.enqueueMany(1, job.Request{MaxAttempts: 2})
	c.hire()
	c.untilDone()
	if attempts, why := c.deadLetter(); attempts != 2 || !strings.Contains(why, "connection reset") {
		t.Errorf("%d attempts: %s", attempts, why)
	}
}

// If a handler of HandleTx calls Finish, the attempt is charged, and the error says what to change.
// The job becomes a dead letter and does not run forever uncharged.
func TestHandleTx_FinishInsideIsChargedAndSaid(t *testing.T) {
	t.Parallel()
	finish := func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error { return t.Finish(ctx, tx) }
	bySQL := func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
		_, err := tx.Exec(ctx, "select pawl_v1.job_finish($1, $2)", t.ID, t.Fence)
		return err
	}
	for name, form := range map[string]struct {
		archive bool // the row stays until job_close
		end     func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error
		runs    int
		says    string
	}{
		// final: it would fail each time
		"Finish, ended first": {false, finish, 1, "do not call Finish"},
		"Finish, archive":     {true, finish, 1, "do not call Finish"},
		"by SQL, ended first": {false, bySQL, 3, "P4020"},
		"by SQL, archive":     {true, bySQL, 3, "the handler ended its job itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			var calls atomic.Int32
			c.handlers = []job.Handler{job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
				calls.Add(1)
				return errors.Join(apply(ctx, tx, t.Job), form.end(ctx, tx, t))
			})}
			if form.archive {
				c.exec("select pawl_v1.queue_set('q', '{\"archive\": true}', 'ann', 'r')")
			}
			c.enqueueMany(1, job.Request{MaxAttempts: 3})
			c.hire()
			c.until("it is no dead letter", "select count(*) from pawl.job where status = 'dead_letter'", 1)
			c.wantEffects(0)
			c.wantDeadLetter(form.runs, form.says)
			if int(calls.Load()) != form.runs {
				t.Errorf("it ran %d times, want %d", calls.Load(), form.runs)
			}
		})
	}
}

// Finish is refused in every form in which the worker ends the job. The error is final, names the
// next step, and nothing has been written.
func TestFinish_IsRefusedWhereTheWorkerEndsTheJob(t *testing.T) {
	t.Parallel()
	for _, form := range append([]string{"many"}, forms...) {
		if form == "simple" {
			continue
		}
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.handlers = []job.Handler{c.handlerOf(form, func(j job.Job) error {
				return pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
					return errors.Join(apply(t.Context(), tx, j), j.Finish(t.Context(), tx))
				})
			})}
			c.enqueueMany(2, job.Request{MaxAttempts: 2})
			c.hire()
			c.until("no dead letters", "select count(*) from pawl.job where status = 'dead_letter' and attempts = 1", 2)
			c.wantCount("select count(*) from pawl_v1.dead_letters as d where d.last_error like '%do not call Finish; return nil%'", 2)
			c.wantEffects(0)
			if n := c.counters.Count(pawl.EventStaleWriteRefused); n != 0 {
				t.Errorf("%d stale writes were reported", n)
			}
		})
	}
}

// A job of a batch that a newer attempt owns is reported once, also if the transaction runs again,
// and the attempt does not end it. The other job is done.
func TestHandleManyTx_AStaleJobIsReportedOnce(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"a lost race": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "do $$ begin raise serialization_failure; end $$")
			return err
		},
		"a lost connection": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		},
		"a rollback as text": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, "rollback")
			return errors.Join(err, errors.New("boom"))
		},
	} {
		for _, newer := range []string{"update pawl.job set fence = fence + 1 where id = 3", "delete from pawl.job where id = 3"} {
			t.Run(name+", "+newer[:6], func(t *testing.T) { staleInABatch(t, failure, newer) })
		}
	}
}

func staleInABatch(t *testing.T, failure func(context.Context, pgx.Tx) error, newer string) {
	t.Parallel()
	c := setupCrew(t)
	// One connection is for handlers.
	c.config.MaxConns, c.concurrency, c.config.Lease = 3, 3, time.Minute
	entered, proceed, calls := make(chan struct{}), make(chan struct{}), 0
	c.handlers = []job.Handler{job.HandleManyTx("k", func(ctx context.Context, tx pgx.Tx, ts []job.Task[[]byte]) error {
		if ts[0].ID == 1 {
			close(entered)
			<-proceed
			return nil
		}
		if calls++; calls == 1 {
			return failure(ctx, tx)
		}
		return apply(ctx, tx, ts[0].Job)
	}).With(job.ManyPolicy{BatchSize: 2})}
	c.enqueueMany(1, job.Request{})
	stop := c.hire()
	<-entered
	c.exec("select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,a}')")
	c.until("the batch is not claimed", "select count(*) from pawl.job where status = 'processing'", 3)
	c.exec(newer)
	close(proceed)
	c.until("the others have not ended", "select count(*) from pawl.job where id <> 3 and status <> 'dead_letter'", 0)
	stop()
	if n := c.counters.Count(pawl.EventStaleWriteRefused); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	c.wantCount("select count(*) from pawl.job where id = 3 and last_errors is not null", 0)
}
