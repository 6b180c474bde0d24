package job_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// A failed commit runs call again in the next attempt. A lost race runs only commit again.
func TestHandleThenTx_WhatRunsAgain(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int32{"boom": 2, "40001": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			var calls, commits atomic.Int32
			c.handlers = []job.Handler{job.HandleThenTx(octets, func(context.Context, job.Task[[]byte]) (int32, error) { return calls.Add(1), nil },
				func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte], n int32) error {
					if n != calls.Load() {
						return pawl.Final(errors.New("the value of another call"))
					}
					if commits.Add(1) > 1 {
						return apply(ctx, tx, t.Job)
					}
					if name == "boom" {
						return errors.New(name)
					}
					_, err := tx.Exec(ctx, "do $$ begin raise serialization_failure; end $$")
					return err
				})}
			c.enqueueMany(1, job.Request{MaxAttempts: 2})
			c.hire()
			c.untilDone()
			c.wantEffects(1)
			if calls.Load() != want || commits.Load() != 2 {
				t.Errorf("%d calls, %d commits; want %d and 2", calls.Load(), commits.Load(), want)
			}
		})
	}
}

// call uses no connection: more run at once than the pool has connections.
func TestHandleThenTx_CallsHoldNoConnection(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	const many = 30
	c.concurrency = many
	var in atomic.Int32
	c.handlers = []job.Handler{job.HandleThenTx(octets, func(ctx context.Context, _ job.Task[[]byte]) (int, error) {
		in.Add(1)
		return 0, patience.Poll(ctx, func() bool { return in.Load() >= many })
	}, func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte], _ int) error { return apply(ctx, tx, t.Job) })}
	c.enqueueMany(many, job.Request{MaxAttempts: 1})
	c.hire()
	c.untilDone()
	c.wantEffects(many)
}

// In call and in commit, Hold works and Finish is rejected.
func TestHandleThenTx_FinishIsRefused(t *testing.T) {
	t.Parallel()
	finish := func(ctx context.Context, c *crew, j job.Job) error {
		return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return errors.Join(j.Hold(ctx, tx), j.Finish(ctx, tx)) })
	}
	for _, where := range []string{"call", "commit"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.handlers = []job.Handler{job.HandleThenTx(octets, func(ctx context.Context, t job.Task[[]byte]) (int, error) {
				if where == "call" {
					return 0, finish(ctx, c, t.Job)
				}
				return 0, nil
			}, func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte], _ int) error {
				return errors.Join(apply(ctx, tx, t.Job), t.Hold(ctx, tx), t.Finish(ctx, tx))
			})}
			c.enqueueMany(1, job.Request{})
			c.hire()
			c.until("no dead letter", "select count(*) from pawl.job where status = 'dead_letter'", 1)
			c.wantEffects(0)
		})
	}
}

// commit has at most 30 s even if call has more, because an open transaction holds back vacuum.
func TestHandleThenTx_CommitIsShort(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{time.Hour: 30 * time.Second, 10 * time.Second: 10 * time.Second} {
		c := setupCrew(t)
		left := func(ctx context.Context) time.Duration {
			deadline, _ := ctx.Deadline()
			return time.Until(deadline)
		}
		c.handlers = []job.Handler{job.HandleThenTx(octets, func(ctx context.Context, _ job.Task[[]byte]) (time.Duration, error) { return left(ctx), nil },
			func(ctx context.Context, tx pgx.Tx, j job.Task[[]byte], called time.Duration) error {
				if got := left(ctx); got <= 0 || got > want || called <= 0 || called > timeout || timeout > want && called <= want {
					t.Errorf("with a Timeout of %v call has %v, commit %v", timeout, called, got)
				}
				return apply(ctx, tx, j.Job)
			}).With(job.Policy{Timeout: timeout})}
		c.enqueueMany(1, job.Request{})
		c.hire()
		c.untilDone()
		c.wantEffects(1)
	}
}

// Middleware runs around call, without a transaction, and around commit, with it.
func TestHandleThenTx_Middleware(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	var seen []string
	c.config.Middleware = []job.Middleware{func(ctx context.Context, call job.Call, next func(context.Context) error) error {
		form := "call"
		if call.Tx != nil {
			form = "commit"
		}
		seen = append(seen, form)
		return next(ctx)
	}}
	c.handlers = []job.Handler{c.handlerOf("then", func(job.Job) error { return nil })}
	c.enqueueMany(1, job.Request{})
	stop := c.hire()
	c.untilDone()
	stop()
	c.wantEffects(1)
	if got := strings.Join(seen, " "); got != "call commit" {
		t.Errorf("middleware saw %q", got)
	}
}

// A payload that does not decode makes a dead letter, and neither function is called.
func TestHandleThenTx_RefusesWhatDoesNotDecode(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.handlers = []job.Handler{job.HandleThenTx(job.Define("k", job.Defaults[mail]{}), func(context.Context, job.Task[mail]) (int, error) { panic("called") },
		func(context.Context, pgx.Tx, job.Task[mail], int) error { panic("called") })}
	c.enqueueMany(1, job.Request{Payload: []byte("no JSON")})
	c.hire()
	c.until("no dead letter", "select count(*) from pawl.job where status = 'dead_letter' and last_errors::text not like '%panic%'", 1)
}
