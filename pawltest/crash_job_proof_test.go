//go:build proof

package pawltest_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// A correct handler of each form passes, and is called again after the deaths.
func TestCrashJob_GoodHandlers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		jobs int
		make func(*pgxpool.Pool) job.Handler
	}{
		"HandleTx": {1, func(*pgxpool.Pool) job.Handler { return job.HandleTx("pay", pay) }},
		"HandleTx, that enqueues": {1, func(*pgxpool.Pool) job.Handler {
			return job.HandleTx("pay", func(ctx context.Context, tx pgx.Tx, t job.Task[cents]) error {
				if _, err := job.Enqueue(ctx, tx, job.Request{Queue: "mail", Kind: "receipt", Value: t.Value}); err != nil {
					return err
				}
				return pay(ctx, tx, t)
			})
		}},
		"HandleManyTx": {3, func(*pgxpool.Pool) job.Handler {
			return job.HandleManyTx("pay", func(ctx context.Context, tx pgx.Tx, ts []job.Task[cents]) error {
				for _, t := range ts {
					if err := pay(ctx, tx, t); err != nil {
						return err
					}
				}
				return nil
			})
		}},
		"Handle, under the job's id": {1, func(pool *pgxpool.Pool) job.Handler {
			return job.Handle("pay", func(ctx context.Context, t job.Task[cents]) error {
				_, err := pool.Exec(ctx, "insert into paid values ($1) on conflict do nothing", t.ID)
				return err
			})
		}},
		"Handle, with Hold and Finish": {1, func(pool *pgxpool.Pool) job.Handler {
			return job.Handle("pay", func(ctx context.Context, t job.Task[cents]) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					return errors.Join(t.Hold(ctx, tx), pay(ctx, tx, t), t.Finish(ctx, tx))
				})
			})
		}},
		"HandleMany, under the jobs' ids": {3, func(pool *pgxpool.Pool) job.Handler {
			return job.HandleMany("pay", func(ctx context.Context, ts []job.Task[cents]) []error {
				errs := make([]error, len(ts))
				for i, t := range ts {
					_, errs[i] = pool.Exec(ctx, "insert into paid values ($1) on conflict do nothing", t.ID)
				}
				return errs
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var made atomic.Int32
			pawltest.CrashEverywhere(t, pawltest.JobTest{Schema: []string{payout}, Jobs: jobs(c.jobs), Make: func(pool *pgxpool.Pool) job.Handler {
				made.Add(1)
				return c.make(pool)
			}})
			// Two undisturbed runs, at least three points, and one run without a death.
			if n := made.Load(); n < 2+3+1 {
				t.Errorf("%d databases", n)
			}
		})
	}
}

// A faulty handler of each form is found. The message names the point, the difference and the fix.
func TestCrashJob_WrongHandlersAreFound(t *testing.T) {
	t.Parallel()
	insert := func(ctx context.Context, pool *pgxpool.Pool, t job.Task[cents]) error {
		_, err := pool.Exec(ctx, "insert into payout (job, cents) values ($1, $2)", t.ID, t.Value.Cents)
		return err
	}
	for name, c := range map[string]struct {
		jobs int
		make func(*pgxpool.Pool) job.Handler
		want string
	}{
		"HandleTx, a row through the pool": {1, func(pool *pgxpool.Pool) job.Handler {
			return job.HandleTx("pay", func(ctx context.Context, tx pgx.Tx, t job.Task[cents]) error {
				return errors.Join(insert(ctx, pool, t), pay(ctx, tx, t))
			})
		}, `death after "insert into payout (job, cents) values ($1, $2)" (point 2): table payout has 3 rows; an undisturbed run leaves 2`},
		"HandleTx, a change through the pool": {1, func(pool *pgxpool.Pool) job.Handler {
			return job.HandleTx("pay", func(ctx context.Context, tx pgx.Tx, t job.Task[cents]) error {
				_, err := pool.Exec(ctx, "update account set balance = balance - 10 where no = 1")
				return errors.Join(err, pay(ctx, tx, t))
			})
		}, `table account differs in balance from an undisturbed run`},
		"HandleTx, a job through the pool": {1, func(pool *pgxpool.Pool) job.Handler {
			return job.HandleTx("pay", func(ctx context.Context, tx pgx.Tx, t job.Task[cents]) error {
				_, err := job.Enqueue(ctx, pool, job.Request{Queue: "mail", Kind: "receipt", Value: t.Value})
				return errors.Join(err, pay(ctx, tx, t))
			})
		}, `the list of enqueued jobs has 2 rows; an undisturbed run leaves 1`},
		"HandleTx, a unique row through the pool": {1, func(pool *pgxpool.Pool) job.Handler {
			return job.HandleTx("pay", func(ctx context.Context, tx pgx.Tx, t job.Task[cents]) error {
				_, err := pool.Exec(ctx, "insert into paid values ($1)", t.ID)
				return errors.Join(err, pay(ctx, tx, t))
			})
		}, `not every job is done`},
		"HandleManyTx, a row through the pool": {3, func(pool *pgxpool.Pool) job.Handler {
			return job.HandleManyTx("pay", func(ctx context.Context, tx pgx.Tx, ts []job.Task[cents]) error {
				for _, t := range ts {
					if err := insert(ctx, pool, t); err != nil {
						return err
					}
				}
				return nil
			})
		}, `table payout has 4 rows; an undisturbed run leaves 3`},
		"Handle, an id that differs from try to try": {1, func(pool *pgxpool.Pool) job.Handler {
			return job.Handle("pay", func(ctx context.Context, t job.Task[cents]) error {
				_, err := pool.Exec(ctx, "insert into payout (job, cents) values ($1, $2) on conflict do nothing", t.ID, t.Value.Cents)
				return err
			})
		}, `death after the handler has returned, before its job is finished (point 3): table payout has 2 rows; an undisturbed run leaves 1`},
		"Handle, a transaction without Finish": {1, func(pool *pgxpool.Pool) job.Handler {
			return job.Handle("pay", func(ctx context.Context, t job.Task[cents]) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return pay(ctx, tx, t) })
			})
		}, `lost reply to "commit", without a death (point 7): table payout has 2 rows; an undisturbed run leaves 1`},
		"HandleMany, ids that differ from try to try": {3, func(pool *pgxpool.Pool) job.Handler {
			return job.HandleMany("pay", func(ctx context.Context, ts []job.Task[cents]) []error {
				errs := make([]error, len(ts))
				for i, t := range ts {
					errs[i] = insert(ctx, pool, t)
				}
				return errs
			})
		}, `table payout has 6 rows; an undisturbed run leaves 3`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := judged(t, func(tb testing.TB) {
				pawltest.CrashEverywhere(tb, pawltest.JobTest{Schema: []string{payout, accounts}, Jobs: jobs(c.jobs), Make: c.make})
			})
			if !strings.Contains(said, c.want) || !strings.Contains(said, "write rows only in the transaction that the handler gets") {
				t.Errorf("said %s", said)
			}
		})
	}
}

// A call of another system is made twice, unless it is a step whose recovery can look up the
// outcome. A step that cannot is left unresolved, so its job is not done.
func TestCrashJob_CallsOutside(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) till { return till{pawltest.NewProvider(t, time.Hour, nil)} }
	t.Run("a keyed step", func(t *testing.T) {
		t.Parallel()
		p := open(t)
		p.prove(t, p.step(step.Keyed(time.Hour)))
	})
	t.Run("a checked step", func(t *testing.T) {
		t.Parallel()
		p := open(t)
		p.prove(t, p.step(step.Checked(func(_ context.Context, c step.Call) (step.ProbeResult, any, error) {
			if slices.ContainsFunc(p.Charges(), func(made pawltest.Charge) bool { return made.Key == c.Key() }) {
				return step.Executed, http.StatusOK, nil
			}
			return step.NotExecuted, nil, nil
		}, 0)))
	})
	t.Run("a call without a step", func(t *testing.T) {
		t.Parallel()
		p := open(t)
		said := judged(t, func(tb testing.TB) {
			p.prove(tb, func(*pgxpool.Pool) job.Handler {
				return job.Handle("pay", func(ctx context.Context, _ job.Task[cents]) error {
					_, err := p.charge(ctx, "")
					return err
				})
			})
		})
		if !strings.Contains(said, "death after the handler has returned, before its job is finished (point 1): 2 charges") || !strings.Contains(said, "a step of package step") {
			t.Errorf("said %s", said)
		}
	})
	t.Run("a step that is called once at most", func(t *testing.T) {
		t.Parallel()
		p := open(t)
		said := judged(t, func(tb testing.TB) { p.prove(tb, p.step(step.AtMostOnce())) })
		if !strings.Contains(said, "death before pawl_v1.step_end (point 10): not every job is done: 0 done, 1 unknown") {
			t.Errorf("said %s", said)
		}
	})
}

// A till is a provider that checks that a handler charges it once.
type till struct{ *pawltest.Provider }

func (p till) charge(ctx context.Context, key string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/charges", strings.NewReader("1250 EUR"))
	if err != nil {
		return 0, err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func (p till) prove(tb testing.TB, made func(*pgxpool.Pool) job.Handler) {
	before := 0
	pawltest.CrashEverywhere(tb, pawltest.JobTest{Jobs: jobs(1), Make: made, Check: func(tb testing.TB, _ *pgxpool.Pool) {
		now := len(p.Charges())
		if now-before != 1 {
			tb.Errorf("%d charges", now-before)
		}
		before = now
	}})
}

// step returns a handler that charges in a step of package step.
func (p till) step(policy step.Recovery) func(*pgxpool.Pool) job.Handler {
	return func(pool *pgxpool.Pool) job.Handler {
		return job.Handle("pay", func(ctx context.Context, t job.Task[cents]) error {
			s := step.Step{Name: "charge", Recovery: policy, Request: t.Value, Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}
			_, err := step.Run(ctx, pool, t, s, func(ctx context.Context, c step.Call) (int, error) { return p.charge(ctx, c.Key()) })
			return err
		})
	}
}
