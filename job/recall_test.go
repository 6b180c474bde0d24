package job_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
)

// An operator's cancel reaches a running handler in every form, even if the attempt has locked the
// job's row. Its context ends, its rows are rolled back, and the job stays cancelled.
func TestCancel_EndsTheRunningHandler(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.config.ShutdownTimeout = 50 * time.Millisecond
			entered := make(chan context.Context, 10)
			hang := func(ctx context.Context) error {
				entered <- ctx
				<-ctx.Done()
				return ctx.Err()
			}
			type task = job.Task[[]byte]
			none := func(context.Context, task) (int, error) { return 0, nil }
			switch form {
			case "sql":
				c.handlers = []job.Handler{job.HandleSQL("k", func(ctx context.Context, tx *sql.Tx, t task) error {
					return errors.Join(applySQL(ctx, tx, t.Job), hang(ctx))
				})}
			case "sql batch":
				c.handlers = []job.Handler{job.HandleManySQL("k", func(ctx context.Context, tx *sql.Tx, ts []task) error {
					return errors.Join(applySQL(ctx, tx, ts[0].Job), hang(ctx))
				})}
			case "call":
				c.handlers = []job.Handler{job.HandleThenTx(octets, func(ctx context.Context, _ task) (int, error) { return 0, hang(ctx) },
					func(ctx context.Context, tx pgx.Tx, t task, _ int) error { return apply(ctx, tx, t.Job) })}
			case "then":
				c.handlers = []job.Handler{job.HandleThenTx(octets, none, func(ctx context.Context, tx pgx.Tx, t task, _ int) error {
					return errors.Join(apply(ctx, tx, t.Job), hang(ctx))
				})}
			case "sql then":
				c.handlers = []job.Handler{job.HandleThenSQL(octets, none, func(ctx context.Context, tx *sql.Tx, t task, _ int) error {
					return errors.Join(applySQL(ctx, tx, t.Job), hang(ctx))
				})}
			case "simple":
				c.handlers = []job.Handler{job.Handle("k", func(ctx context.Context, _ job.Task[[]byte]) error { return hang(ctx) })}
			case "transactional":
				c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
					return errors.Join(apply(ctx, tx, j), hang(ctx))
				}
			case "batch":
				c.handlers = []job.Handler{job.HandleManyTx("k", func(ctx context.Context, tx pgx.Tx, ts []job.Task[[]byte]) error {
					return errors.Join(apply(ctx, tx, ts[0].Job), hang(ctx))
				})}
			}
			c.enqueueMany(1, job.Request{})
			c.hire()
			ctx := <-entered
			r, err := ops.JobRef{ID: 1}.Cancel(t.Context(), c.pool, ops.By{Actor: "test", Reason: "it hangs"})
			if err != nil || r.Outcome != ops.Cancelled {
				t.Fatalf("%+v, %v", r, err)
			}
			<-ctx.Done()
			c.untilTrue("the slot is free", func() bool { return c.pool.Stat().AcquiredConns() == 0 })
			c.wantCount("select count(*) from pawl.job where status = 'cancelled' and claimed_by is null", 1)
			c.wantEffects(0)
			c.untilTrue("the recall is reported", func() bool { return c.saw(pawl.EventCancelled, "job.recall") > 0 })
			c.enqueueMany(1, job.Request{}) // the worker continues
			<-entered
		})
	}
}

// A recall after the handler's return, or ignored by it, does not run a finished job again.
func TestRecall_WhatIsDoneIsFinished(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.handlers = []job.Handler{job.Handle("k", func(ctx context.Context, _ job.Task[[]byte]) error {
		c.exec("select pawl_v1.job_recall(1)")
		<-ctx.Done()
		c.exec("insert into effect values (1)")
		return nil
	})}
	c.enqueueMany(1, job.Request{})
	c.hire()
	c.untilDone()
	c.wantEffects(1)
}

// If the reply of a heartbeat with a recall is lost, the next heartbeat repeats the recall.
func TestRecall_ALostReplyIsRepeated(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t, effects)
	direct, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(direct.Close)
	proxy, through := wireproxy.Start(t, url)
	c := setupCrewOn(t, through+"&default_query_exec_mode=cache_describe")
	entered := make(chan struct{}, 1)
	c.handlers = []job.Handler{job.Handle("k", func(ctx context.Context, _ job.Task[[]byte]) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})}
	c.enqueueMany(1, job.Request{})
	c.hire()
	<-entered
	var once sync.Once
	proxy.Aim(wireproxy.Executes("pawl_v1.worker_heartbeat"))
	proxy.OnCommit(func() (fate wireproxy.Cut) {
		once.Do(func() { // just before a heartbeat arrives
			var outcome string
			if err := direct.QueryRow(t.Context(), "select r.outcome from pawl_v1.job_recall(1) as r").Scan(&outcome); err != nil || outcome != "recalled" {
				t.Errorf("%s, %v", outcome, err)
			}
			fate = wireproxy.BeforeReply
		})
		return fate
	})
	c.untilTrue("the recall is reported", func() bool { return c.saw(pawl.EventCancelled, "job.recall") > 0 })
	if proxy.Cuts() != 1 {
		t.Errorf("%d replies were cut", proxy.Cuts())
	}
	<-entered // the job was released, uncharged, and runs again
	c.until("what has arrived is forgotten", "select count(*) from pawl.recall", 0)
}
