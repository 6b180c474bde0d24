package job_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

func simply(fn func(ctx context.Context, j job.Job) error) []job.Handler {
	return []job.Handler{job.Handle("k", func(ctx context.Context, t job.Task[[]byte]) error { return fn(ctx, t.Job) })}
}

// Handlers that block get all slots: each waits until all have begun.
func TestRunners_BlockingHandlersGetAllSlots(t *testing.T) {
	t.Parallel()
	const n = 200
	c := setupCrew(t)
	c.concurrency = n
	var begun atomic.Int32
	all := make(chan struct{})
	c.handlers = simply(func(ctx context.Context, _ job.Job) error {
		if begun.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	c.enqueueMany(n, job.Request{})
	c.hire()
	c.untilDone()
	if c.counters.Count(pawl.EventRetryable) != 0 {
		t.Error("not all slots were used at once")
	}
}

// A handler that exits its goroutine costs its attempt, and its slot becomes free.
func TestRunners_ExitCostsOneAttempt(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency = 1
	c.handlers = simply(func(_ context.Context, j job.Job) error {
		if string(j.Payload) == "exit" {
			runtime.Goexit()
		}
		return nil
	})
	for i := range 30 {
		c.enqueueMany(1, job.Request{Payload: []byte([]string{"exit", "return"}[i%2]), MaxAttempts: 2})
	}
	c.hire()
	c.untilDone()
	c.wantCount("select count(*) from pawl_v1.dead_letters as d where d.attempts = 2 and d.last_error like '%goroutine exited%'", 15)
	c.wantCount("select count(*) from pawl.job", 15)
	c.untilTrue("all healthy jobs have an event", func() bool { return c.counters.Count(pawl.EventSucceeded) == 15 })
}

// The limit reaches handlers that wait for Done, poll Err, or derive their own context.
func TestRunners_LimitReachesHandlers(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(ctx context.Context) error{
		"done": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"err": func(ctx context.Context) error {
			return patience.Poll(ctx, func() bool { return false })
		},
		"child": func(ctx context.Context) error {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			<-child.Done()
			return child.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.config.Timeout = 100 * time.Millisecond
			var wrong atomic.Bool
			c.handlers = simply(func(ctx context.Context, _ job.Job) error {
				limit, ok := ctx.Deadline()
				err := wait(ctx)
				wrong.Store(!ok || time.Now().Before(limit) || !errors.Is(err, context.DeadlineExceeded))
				return err
			})
			c.enqueueMany(1, job.Request{MaxAttempts: 1})
			c.hire()
			c.untilDone()
			c.wantDeadLetter(1, "overran its limit of 100ms: context deadline exceeded")
			if wrong.Load() {
				t.Error("the limit came early, or with another error")
			}
		})
	}
}

// A simple handler that never waits for Done learns from Err that an operator has recalled its job.
func TestRunners_RecallReachesErr(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	begun := make(chan int64, 1)
	cause := make(chan error, 1)
	c.handlers = simply(func(ctx context.Context, j job.Job) error {
		begun <- j.ID
		err := patience.Poll(ctx, func() bool { return false })
		cause <- context.Cause(ctx)
		return err
	})
	c.enqueueMany(1, job.Request{})
	c.hire()
	_, err := job.CancelByID(c.Context(), c.pool, <-begun)
	c.must(err)
	if err := <-cause; err == nil || !strings.Contains(err.Error(), "recalled") {
		t.Errorf("the cause is %v", err)
	}
	c.wantCount("select count(*) from pawl.job where status = 'cancelled'", 1)
}

// A claim returns the same in every query mode of pgx, binary or text.
func TestClaim_IsTheSameInEveryMode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, size := range []int{0, 1, 2047, 2048, 20_000, 16 << 10, 5} {
		b.enqueue(job.Request{Queue: "q", Kind: fmt.Sprintf("k%d", i%2), Payload: []byte(strings.Repeat(string(rune('a'+i)), size)),
			Headers: []map[string]any{nil, {"a": "1", "n": []any{1.5, nil}}}[i%2], Lane: []string{"", "", fmt.Sprint("lane ", i)}[i%3], Priority: i%4 + 1})
	}
	b.exec("update pawl.job set crashes = 0, created_at = '1999-12-31 23:59:59.999999+02' where id % 2 = 0")
	read := func(mode pgx.QueryExecMode) (jobs []job.Job) {
		config := b.pool.Config()
		config.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		b.must(err)
		defer pool.Close()
		own := *b
		own.pool = pool
		jobs = own.claimUpTo(100)
		slices.SortFunc(jobs, func(a, b job.Job) int { return cmp.Compare(a.ID, b.ID) })
		b.exec("update pawl.job set status = 'pending', fence = fence - 1, attempts = 0, claimed_by = null where status = 'processing'")
		return jobs
	}
	want := read(pgx.QueryExecModeSimpleProtocol)
	if len(want) != 7 {
		t.Fatalf("claimed %d", len(want))
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec} {
		got := read(mode)
		if len(got) != len(want) {
			t.Fatalf("%v: claimed %d", mode, len(got))
		}
		for i := range want {
			if !got[i].CreatedAt.Equal(want[i].CreatedAt) {
				t.Errorf("%v: created at %v, want %v", mode, got[i].CreatedAt, want[i].CreatedAt)
			}
			got[i].CreatedAt = want[i].CreatedAt
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("%v: %+v, want %+v", mode, got[i], want[i])
			}
		}
	}
}
