package job_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
)

// With two workers, each job takes effect once and ends with its effect.
func TestWorker_EachJobTakesEffectOnce(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(300, job.Request{})
	c.hire()
	c.hire()
	c.untilDone()
	c.wantEffects(300)
	c.untilTrue("300 effects counted", func() bool { return c.counters.Count(pawl.EventSucceeded) == 300 })
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text } // panics on a nil pointer

// failures are the ways to fail, with the attempts charged of three, and a part of the last error.
var failures = map[string]struct {
	fail     func(context.Context, pgx.Tx) error
	attempts int
	words    string
}{
	"error":     {func(context.Context, pgx.Tx) error { return errors.New("boom") }, 3, "boom"},
	"panic":     {func(context.Context, pgx.Tx) error { panic("boom") }, 3, "panic: boom, at github.com/pawl-go/pawl/job_test"},
	"nil error": {func(context.Context, pgx.Tx) error { var e *nilError; return e }, 3, "nil pointer dereference"},
	"exit":      {func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }, 3, "goroutine exited"},
	"final":     {func(context.Context, pgx.Tx) error { return pawl.Final(errors.New("boom")) }, 1, "final: boom"},
	"bad data":  {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 'x'::int"); return err }, 1, "invalid input syntax"},
	"swallowed": {func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "select 1/0"); return nil }, 3, "25P02"},
	"rows open": {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Query(ctx, "select 1"); return err }, 3, "conn busy"},
	"rows, err": {func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Query(ctx, "select 1")
		return errors.New("boom")
	}, 3, "boom"},
	"overrun": {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "select pg_sleep(60)"); return err }, 3, "overran its limit of 100ms"},
	"overrun %v": {func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select pg_sleep(60)")
		return errors.New(err.Error())
	}, 3, "overran its limit"},
	"deferred": {func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into strict values (1)")
		return err
	}, 3, "23505"},
	"commit":                    {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, 3, "must not commit or roll back"},
	"rollback":                  {func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, 3, "must not commit or roll back"},
	"commit as text":            {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "/**/ Commit"); return err }, 3, "COMMIT was not sent"},
	"rollback as text, ignored": {func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "rollback"); return nil }, 3, "must not commit or roll back"},
}

// A failed handler's rows are rolled back, and its attempts are charged up to a dead letter.
func TestWorker_FailuresAreChargedThenDeadLetter(t *testing.T) {
	t.Parallel()
	for name, f := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t, "create table strict (n int unique deferrable initially deferred); insert into strict values (1)")
			c.config.Timeout = 10 * time.Second
			if f.words == "overran its limit" || f.words == "overran its limit of 100ms" {
				c.config.Timeout = 100 * time.Millisecond
			}
			var calls atomic.Int32
			c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
				calls.Add(1)
				if err := apply(ctx, tx, j); err != nil {
					return err
				}
				return f.fail(ctx, tx)
			}
			c.enqueueMany(1, job.Request{MaxAttempts: 3})
			c.hire()
			c.untilDone()
			c.wantEffects(0)
			c.wantDeadLetter(f.attempts, f.words)
			if int(calls.Load()) != f.attempts {
				t.Errorf("the handler ran %d times, want %d", calls.Load(), f.attempts)
			}
		})
	}
}

// A handler that sends COMMIT through the connection commits its rows and the end of its job
// together. The job takes effect once, and an event names the mistake.
func TestWorker_RawCommitIsNotRunAgain(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]error{"then nil": nil, "then an error": errors.New("boom")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
				if err := apply(ctx, tx, j); err != nil {
					return err
				}
				if _, err := tx.Conn().Exec(ctx, "commit"); err != nil {
					return err
				}
				return then
			}
			c.enqueueMany(1, job.Request{})
			c.hire()
			c.untilDone()
			c.wantEffects(1)
			c.wantCount("select count(*) from pawl.job", 0)
			c.untilTrue("the refused write is reported", func() bool { return c.saw(pawl.EventStaleWriteRefused, "job.finish") == 1 })
		})
	}
}

// If a batch handler sends COMMIT through the connection, its rows may be durable while the jobs
// are not finished. The jobs become dead letters, and a retry may repeat their effect.
func TestWorker_ARawCommitOfABatchMayDouble(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.handlers = []job.Handler{job.HandleManyTx("k", func(ctx context.Context, tx pgx.Tx, ts []job.Task[[]byte]) error {
		for _, t := range ts {
			if err := apply(ctx, tx, t.Job); err != nil {
				return err
			}
		}
		_, err := tx.Conn().Exec(ctx, "commit")
		return err
	})}
	c.enqueueMany(1, job.Request{})
	c.hire()
	c.untilDone()
	c.wantCount("select count(*) from effect", 1)
	page, err := ops.Jobs{Queue: "q"}.List(t.Context(), c.pool)
	if err != nil || len(page.Rows) != 1 || !page.Rows[0].MayDouble() {
		t.Fatalf("%+v, %v: want one that may double", page.Rows, err)
	}
	if n, err := (ops.Jobs{Queue: "q", NoDoubles: true}).Count(t.Context(), c.pool); err != nil || n != 0 {
		t.Errorf("%d are retried without doubles, %v", n, err)
	}
	c.wantCount("select count(*) from pawl_v1.dead_letters as d where d.advice like '%its handler ended the transaction%'", 1)
}

// A lost race restarts the whole transaction, uncharged.
func TestWorker_LostRacesRestart(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	var calls atomic.Int32
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if err := apply(ctx, tx, j); err != nil {
			return err
		}
		if calls.Add(1) <= 3 {
			_, err := tx.Exec(ctx, "do $$ begin raise exception 'lost' using errcode = '40001'; end $$")
			return err
		}
		return nil
	}
	c.enqueueMany(1, job.Request{MaxAttempts: 1})
	c.hire()
	c.untilDone()
	c.wantEffects(1)
}

// An attempt that loses eight races in a row is charged.
func TestWorker_RacesLostForEverAreCharged(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	var calls atomic.Int32
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		calls.Add(1)
		_, err := tx.Exec(ctx, "do $$ begin raise exception 'lost' using errcode = '40001'; end $$")
		return err
	}
	c.enqueueMany(1, job.Request{MaxAttempts: 2})
	c.hire()
	c.untilDone()
	c.wantDeadLetter(2, "lost")
	if calls.Load() != 16 {
		t.Errorf("the handler ran %d times, want 16", calls.Load())
	}
}

// A killed backend is not the job's fault: its only attempt is not charged.
func TestWorker_KilledConnectionIsNotCharged(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(error) error{
		"returned":    func(err error) error { return err },
		"swallowed":   func(error) error { return nil },
		"not wrapped": func(err error) error { return errors.New(err.Error()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			var calls atomic.Int32
			c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
				if err := apply(ctx, tx, j); err != nil {
					return err
				}
				if calls.Add(1) > 1 {
					return nil
				}
				_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
				return then(err)
			}
			c.enqueueMany(1, job.Request{MaxAttempts: 1})
			c.hire()
			c.untilDone()
			c.wantEffects(1)
			c.wantCount("select count(*) from pawl.job", 0)
		})
	}
}

// The reply to COMMIT is lost, before or after the server committed, and each job takes effect
// once. The transaction runs again at once. If that is also lost, the attempt is charged.
func TestWorker_LostCommitReply(t *testing.T) {
	t.Parallel()
	for name, world := range worlds {
		for _, form := range []string{"transactional", "batch", "sql", "sql batch", "then", "sql then"} {
			t.Run(form+" "+name, func(t *testing.T) {
				t.Parallel()
				url := pawltest.URL(t, effects)
				proxy, through := wireproxy.Start(t, url)
				c := setupCrewOn(t, through)
				h := c.handlerOf(form, func(job.Job) error { return nil })
				c.handlers, c.concurrency = []job.Handler{inBatches(2, h)}, 4
				c.enqueueMany(40, job.Request{})
				var commits atomic.Int32
				proxy.OnCommit(func() wireproxy.Cut {
					if commits.Add(1)%2 == 0 {
						return world
					}
					return wireproxy.Pass
				})
				c.hire()
				c.untilDone()
				c.wantEffects(40)
				c.wantCount("select count(*) from pawl.job", 0)
				c.untilTrue("ten unknown commits are reported", func() bool { return c.saw(pawl.EventCommitUnknown, "job.finish") >= 10 })
				if proxy.Cuts() < 10 {
					t.Errorf("%d replies were cut", proxy.Cuts())
				}
			})
		}
	}
}

var worlds = map[string]wireproxy.Cut{"committed": wireproxy.BeforeReply, "rolled back": wireproxy.BeforeSend}

// In the simple form a finish without a reply is retried, and no handler runs twice.
func TestWorker_LostFinishReply(t *testing.T) {
	t.Parallel()
	for name, world := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through := wireproxy.Start(t, pawltest.URL(t, effects))
			c := setupCrewOn(t, through+"&default_query_exec_mode=cache_describe")
			c.handlers = []job.Handler{c.handlerOf("simple", func(job.Job) error { return nil })}
			c.concurrency = 1
			var finishes atomic.Int32
			many, exchange := wireproxy.Executes("pawl_v1.job_finish_many"), wireproxy.Executes("pawl_v1.job_exchange")
			proxy.Aim(func(sent []byte) bool { return many(sent) || exchange(sent) })
			proxy.OnCommit(func() wireproxy.Cut {
				if finishes.Add(1)%3 == 0 {
					return world
				}
				return wireproxy.Pass
			})
			c.enqueueMany(20, job.Request{MaxAttempts: 1})
			c.hire()
			c.untilDone()
			c.wantEffects(20)
			c.wantCount("select count(*) from pawl.job", 0)
			if proxy.Cuts() < 5 {
				t.Errorf("%d replies were cut", proxy.Cuts())
			}
		})
	}
}

// If a claim's reply is lost, its jobs are not stuck under the lease that the worker renews.
func TestWorker_LostClaimReply(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t, effects)
	proxy, through := wireproxy.Start(t, url)
	c := setupCrewOn(t, through+"&default_query_exec_mode=cache_describe")
	var claims atomic.Int32
	proxy.Aim(wireproxy.Executes("pawl_v1.job_claim"))
	proxy.OnCommit(func() wireproxy.Cut {
		if claims.Add(1) == 3 {
			return wireproxy.BeforeReply
		}
		return wireproxy.Pass
	})
	c.hire()
	c.untilTrue("an idle worker", func() bool { return claims.Load() >= 1 })
	c.enqueueMany(20, job.Request{MaxAttempts: 1})
	c.untilTrue("a claim cut", func() bool { return proxy.Cuts() == 1 })
	c.enqueueMany(20, job.Request{MaxAttempts: 1})
	c.untilDone()
	c.wantEffects(40)
	c.wantCount("select count(*) from pawl.job", 0)
}

// The number of handlers that run at once reaches Concurrency and never exceeds it.
func TestWorker_ConcurrencyIsTheBound(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency = 3
	var running, most atomic.Int32
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		n := running.Add(1)
		defer running.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		// Each handler waits until the bound is reached once.
		if err := patience.Poll(ctx, func() bool { return most.Load() >= 3 }); err != nil {
			return err
		}
		return apply(ctx, tx, j)
	}
	c.enqueueMany(50, job.Request{})
	c.hire()
	c.untilDone()
	c.wantEffects(50)
	if most.Load() != 3 {
		t.Errorf("%d handlers ran at once, want 3", most.Load())
	}
}

// NewWorker rejects a configuration that cannot work. Handlers on every connection of the pool
// would starve the heartbeat of their own lease.
func TestNewWorker_RefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	for name, change := range map[string]func(*job.Config){
		"no queue":       func(o *job.Config) { o.Queues = nil },
		"nameless queue": func(o *job.Config) { o.Queues = []job.Queue{{}} },
		"queue twice":    func(o *job.Config) { o.Queues = append(o.Queues, o.Queues...) },
		"no handler":     func(o *job.Config) { o.Handlers = nil },
		"nil handler":    func(o *job.Config) { o.Handlers = []job.Handler{nil} },
		"empty handler":  func(o *job.Config) { o.Handlers = []job.Handler{job.SingleHandler{}} },
		"empty batch":    func(o *job.Config) { o.Handlers = []job.Handler{job.ManyHandler{}} },
		"kind twice":     func(o *job.Config) { o.Handlers = append(o.Handlers, o.Handlers...) },
		"nameless kind":  func(o *job.Config) { o.Handlers = []job.Handler{inTx("", apply)} },
		"batch too big":  func(o *job.Config) { o.Handlers[0] = inBatches(501, c.handlerOf("batch", nil)) },
		"short lease":    func(o *job.Config) { o.Lease = 999 * time.Millisecond },
		"long lease":     func(o *job.Config) { o.Lease = 13 * time.Hour },
		"pool too small": func(o *job.Config) { o.Queues[0].Concurrency = 11 },
	} {
		config := c.complete()
		change(&config)
		if _, err := job.NewWorker(c.pool, config); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
