package job_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

type charge struct {
	ID      string `json:"id"`
	Account string `json:"account"`
}

func byCharge(c charge) string { return c.ID }

// Each request has the options of its definition, and otherwise the request's defaults.
func TestDefinition_SaysItOnce(t *testing.T) {
	t.Parallel()
	full := job.Define("charge", job.Defaults[charge]{Queue: "payments", Key: byCharge, Retention: time.Hour, Lane: func(c charge) string { return c.Account },
		LanePolicy: job.LanePark, MaxAttempts: 5, Priority: 1, StartIn: time.Minute})
	want := job.Request{Kind: "charge", Queue: "payments", Key: "c1", Retention: time.Hour, Lane: "a", LanePolicy: job.LanePark, MaxAttempts: 5, Priority: 1,
		StartIn: time.Minute}
	got := full.Request(charge{"c1", "a"})
	if got.Value != (charge{"c1", "a"}) {
		t.Errorf("the value is %v", got.Value)
	}
	if got.Value = nil; !same(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if r := full.Request(charge{ID: "c2"}); r.Lane != "" || r.LanePolicy != "" {
		t.Errorf("without a lane: %q, %q", r.Lane, r.LanePolicy)
	}
	if r := job.Define("raw", job.Defaults[[]byte]{}).Request([]byte("octets")); string(r.Payload) != "octets" || r.Value != nil || r.Queue != "default" {
		t.Errorf("%+v", r)
	}
	if r := job.Define("any", job.Defaults[any]{}).Request(nil); string(r.Payload) != "null" {
		t.Errorf("%+v", r)
	}
	if r := job.Define("any", job.Defaults[any]{}).Request([]byte("octets")); r.Payload != nil || r.Value == nil {
		t.Errorf("an any is JSON, also of octets: a handler decodes it: %+v", r)
	}
}

func same(a, b job.Request) bool {
	return a.Kind == b.Kind && a.Queue == b.Queue && a.Key == b.Key && a.Retention == b.Retention && a.Lane == b.Lane && a.LanePolicy == b.LanePolicy &&
		a.MaxAttempts == b.MaxAttempts && a.Priority == b.Priority && a.StartIn == b.StartIn
}

// A definition enqueues one or many jobs on a pool, in a pgx.Tx and in a *sql.Tx. Its key makes
// duplicates one job, and a rollback undoes the enqueue.
func TestDefinition_Enqueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := job.Define("charge", job.Defaults[charge]{Queue: "payments", Key: byCharge})
	enqueue := func(db job.DB, id string) job.Enqueued {
		e, err := d.Enqueue(t.Context(), db, charge{ID: id})
		b.must(err)
		return e
	}
	first := enqueue(b.pool, "c1")
	if again := enqueue(b.pool, "c1"); !again.Duplicate || again.ID != first.ID {
		t.Errorf("%+v after %+v", again, first)
	}
	tx := b.begin()
	enqueue(tx, "c2")
	b.must(tx.Rollback(t.Context()))
	standard, err := stdlib.OpenDBFromPool(b.pool).BeginTx(t.Context(), nil)
	b.must(err)
	enqueue(pawl.SQL(standard), "c3")
	b.wantCount("select count(*) from pawl.job", 1)
	b.must(standard.Commit())
	all, err := d.EnqueueMany(t.Context(), b.pool, []charge{{ID: "c3"}, {ID: "c4"}})
	b.must(err)
	if len(all) != 2 || !all[0].Duplicate || all[1].Duplicate {
		t.Errorf("%+v", all)
	}
	b.wantCount("select count(*) from pawl.job where kind = 'charge' and queue = 'payments'", 3)
}

// Every form of a definition handles its jobs, on a worker without Queues.
func TestDefinition_HandlesOnItsQueue(t *testing.T) {
	t.Parallel()
	define := func(kind string) job.Definition[charge] {
		return job.Define(kind, job.Defaults[charge]{Queue: "of " + kind, Key: byCharge})
	}
	type task = job.Task[charge]
	all := map[string]func(*crew, job.Definition[charge]) job.Handler{
		"simple": func(c *crew, d job.Definition[charge]) job.Handler {
			return d.Handle(func(ctx context.Context, t task) error {
				return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return apply(ctx, tx, t.Job) })
			})
		},
		"many": func(c *crew, d job.Definition[charge]) job.Handler {
			return d.HandleMany(func(ctx context.Context, ts []task) []error {
				return []error{pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return apply(ctx, tx, ts[0].Job) })}
			})
		},
		"tx": func(_ *crew, d job.Definition[charge]) job.Handler {
			return d.HandleTx(func(ctx context.Context, tx pgx.Tx, t task) error { return apply(ctx, tx, t.Job) })
		},
		"batch": func(_ *crew, d job.Definition[charge]) job.Handler {
			return d.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ts []task) error { return apply(ctx, tx, ts[0].Job) })
		},
		"sql": func(_ *crew, d job.Definition[charge]) job.Handler {
			return d.HandleSQL(func(ctx context.Context, tx *sql.Tx, t task) error { return applySQL(ctx, tx, t.Job) })
		},
		"sql batch": func(_ *crew, d job.Definition[charge]) job.Handler {
			return d.HandleManySQL(func(ctx context.Context, tx *sql.Tx, ts []task) error { return applySQL(ctx, tx, ts[0].Job) })
		},
		"then": func(_ *crew, d job.Definition[charge]) job.Handler {
			return job.HandleThenTx(d, func(_ context.Context, t task) (string, error) { return t.Value.ID, nil },
				func(ctx context.Context, tx pgx.Tx, t task, id string) error {
					if id != t.Value.ID {
						return errors.New("another value")
					}
					return apply(ctx, tx, t.Job)
				})
		},
		"sql then": func(_ *crew, d job.Definition[charge]) job.Handler {
			return job.HandleThenSQL(d, func(_ context.Context, t task) (string, error) { return t.Value.ID, nil },
				func(ctx context.Context, tx *sql.Tx, t task, _ string) error { return applySQL(ctx, tx, t.Job) })
		},
	}
	c := setupCrew(t)
	for kind, make := range all {
		d := define(kind)
		c.handlers = append(c.handlers, make(c, d))
		_, err := d.Enqueue(t.Context(), c.pool, charge{ID: kind})
		c.must(err)
	}
	config := c.complete()
	config.Queues = nil
	w, err := job.NewWorker(c.pool, config)
	c.must(err)
	c.run(w)
	c.untilDone()
	c.wantEffects(len(all))
}

// Without Queues, a handler that comes from no definition is rejected.
func TestConfig_Queues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	none := func(context.Context, job.Task[charge]) error { return nil }
	of := job.Define("a", job.Defaults[charge]{Queue: "payments"}).Handle(none)
	if _, err := job.NewWorker(b.pool, job.Config{Handlers: []job.Handler{of, job.Handle("b", none)}}); !errors.Is(err, pawl.ErrArgumentInvalid) ||
		!strings.Contains(err.Error(), `kind "b"`) {
		t.Errorf("%v", err)
	}
	for want, queues := range map[string][]job.Queue{"payments": nil, "elsewhere": {{Name: "elsewhere"}}} {
		w, err := job.NewWorker(b.pool, job.Config{Handlers: []job.Handler{of, job.Define("c", job.Defaults[charge]{Queue: "payments"}).Handle(none)}, Queues: queues})
		b.must(err)
		if got := w.QueueNames(); len(got) != 1 || got[0] != want {
			t.Errorf("works on %q, want %q", got, want)
		}
	}
}

// In every form, Hold in the lent transaction does nothing and does not wait.
func TestHold_InTheLentTransaction(t *testing.T) {
	t.Parallel()
	type task = job.Task[[]byte]
	none := func(context.Context, task) (int, error) { return 0, nil }
	for form, h := range map[string]job.Handler{
		"transactional": job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, t task) error {
			return errors.Join(t.Hold(ctx, tx), apply(ctx, tx, t.Job))
		}),
		"sql": job.HandleSQL("k", func(ctx context.Context, tx *sql.Tx, t task) error {
			return errors.Join(t.Hold(ctx, pawl.SQLTx(tx)), applySQL(ctx, tx, t.Job))
		}),
		"sql batch": job.HandleManySQL("k", func(ctx context.Context, tx *sql.Tx, ts []task) error {
			return errors.Join(ts[0].Hold(ctx, pawl.SQLTx(tx)), applySQL(ctx, tx, ts[0].Job))
		}),
		"then": job.HandleThenTx(octets, none, func(ctx context.Context, tx pgx.Tx, t task, _ int) error {
			return errors.Join(t.Hold(ctx, tx), apply(ctx, tx, t.Job))
		}),
		"sql then": job.HandleThenSQL(octets, none, func(ctx context.Context, tx *sql.Tx, t task, _ int) error {
			return errors.Join(t.Hold(ctx, pawl.SQLTx(tx)), applySQL(ctx, tx, t.Job))
		}),
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.handlers = []job.Handler{h}
			c.enqueueMany(1, job.Request{MaxAttempts: 1})
			c.hire()
			c.untilDone()
			c.wantEffects(1)
		})
	}
}
