package pawltest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

var errBroken = errors.New("the printer is on fire")

// enqueue stores jobs in queue q.
func enqueue(t *testing.T, db job.DB, requests ...job.Request) (ids []int64) {
	t.Helper()
	for _, r := range requests {
		if r.Queue == "" {
			r.Queue = "q"
		}
		if r.Value == nil && r.Payload == nil {
			r.Value = r.Kind
		}
		e, err := job.Enqueue(t.Context(), db, r)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

func working(hs ...job.Handler) job.Config {
	return job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: hs, Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}
}

func ids(as []pawltest.DrainedJob) (all []int64) {
	for _, a := range as {
		all = append(all, a.ID)
	}
	slices.Sort(all)
	return all
}

func count(t *testing.T, pool *pgxpool.Pool, query string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Drain also runs jobs that handlers enqueue, in any queue and with each form of handler.
func TestDrain_WorksUntilNothingIsDue(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, "create table printed (text text)")
	var largest atomic.Int32
	follow := func(ctx context.Context, db job.DB, queue, kind string) error {
		_, err := job.Enqueue(ctx, db, job.Request{Queue: queue, Kind: kind, Value: kind})
		return err
	}
	cfg := working(
		job.Handle("simple", func(ctx context.Context, _ job.Task[string]) error {
			return follow(ctx, pool, "other", "transactional")
		}),
		job.HandleTx("transactional", func(ctx context.Context, tx pgx.Tx, t job.Task[string]) error {
			if _, err := tx.Exec(ctx, "insert into printed values ($1)", t.Value); err != nil {
				return err
			}
			return follow(ctx, tx, "q", "last")
		}),
		job.HandleManyTx("batch", func(_ context.Context, _ pgx.Tx, ts []job.Task[string]) error {
			largest.Store(max(largest.Load(), int32(len(ts))))
			return nil
		}),
		job.HandleMany("many", func(_ context.Context, ts []job.Task[string]) []error { return make([]error, len(ts)) }),
		job.Handle("last", func(context.Context, job.Task[string]) error { return nil }),
	)
	cfg.Queues = []job.Queue{{Name: "q", Concurrency: 10}, {Name: "other", Concurrency: 1}}
	wide := pool.Config()
	wide.MaxConns = 14
	pool, err := pgxpool.NewWithConfig(t.Context(), wide)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	enqueue(t, pool, job.Request{Kind: "simple"}, job.Request{Kind: "simple"}, job.Request{Kind: "batch"}, job.Request{Kind: "batch"},
		job.Request{Kind: "batch"}, job.Request{Kind: "many"}, job.Request{Kind: "many"})
	d := pawltest.Drain(t, pool, cfg)
	if len(d.Done) != 11 || len(d.Retried)+len(d.Dead)+len(d.Left) != 0 || len(slices.Compact(ids(d.Done))) != 11 {
		t.Errorf("drained %v", d)
	}
	if n := count(t, pool, "select count(*) from printed"); n != 2 {
		t.Errorf("%d printed", n)
	}
	if n := count(t, pool, "select count(*) from pawl_v1.jobs"); n != 0 {
		t.Errorf("%d jobs are there", n)
	}
	if largest.Load() != 3 {
		t.Errorf("the largest batch had %d jobs", largest.Load())
	}
	if again := pawltest.Drain(t, pool, cfg); again.String() != "0 done" {
		t.Errorf("drained again %v", again)
	}
}

// A failed job is retried at once, as often as it has attempts, despite its back-off.
func TestDrain_StepsOverBackOffs(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	cfg := working(
		job.Handle("flaky", func(_ context.Context, t job.Task[string]) error {
			switch t.Attempt {
			case 1:
				return errBroken
			case 2:
				return job.RetryAfter(time.Hour, errBroken)
			}
			return nil
		}),
		job.HandleTx("broken", func(context.Context, pgx.Tx, job.Task[string]) error { return errBroken }),
		job.Handle("final", func(context.Context, job.Task[string]) error { return pawl.Final(errBroken) }),
		job.Handle("gone", func(context.Context, job.Task[string]) error { return job.Cancel(errBroken) }),
		job.Handle("unsure", func(ctx context.Context, t job.Task[string]) error {
			_, err := step.Run(ctx, pool, t, step.Step{Name: "charge", Recovery: step.AtMostOnce(), Provider: "bank"},
				func(context.Context, step.Call) (string, error) { return "", errBroken })
			return err
		}),
	)
	cfg.Backoff = job.Backoff{Base: time.Hour, Max: 10 * time.Hour}
	id := enqueue(t, pool, job.Request{Kind: "flaky"}, job.Request{Kind: "broken", MaxAttempts: 4}, job.Request{Kind: "final"}, job.Request{Kind: "gone"}, job.Request{Kind: "unsure"})
	d := pawltest.Drain(t, pool, cfg)
	if !slices.Equal(ids(d.Done), id[:1]) || d.Done[0].Attempt != 3 || d.Done[0].Err != nil {
		t.Errorf("done: %v", d)
	}
	if !slices.Equal(ids(d.Retried), []int64{id[0], id[0], id[1], id[1], id[1]}) {
		t.Errorf("retried: %v", d)
	}
	if !slices.Equal(ids(d.Dead), id[1:3]) || !errors.Is(d.Dead[0].Err, errBroken) || !errors.Is(d.Dead[1].Err, errBroken) {
		t.Errorf("dead: %v", d)
	}
	if !slices.Equal(ids(d.Cancelled), id[3:4]) || !slices.Equal(ids(d.Unknown), id[4:]) || len(d.Left) != 0 {
		t.Errorf("cancelled, unknown or left: %v", d)
	}
	if text := d.String(); !strings.HasPrefix(text, "1 done, 5 retried\n") || !strings.Contains(text, "(broken), attempt 4: "+errBroken.Error()) {
		t.Errorf("said %q", text)
	}
}

// DrainOnce tries each job once. A failed job waits until the next drain.
func TestDrainOnce_LeavesRetries(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	var order []string // one at a time
	cfg := working(job.Handle("k", func(_ context.Context, t job.Task[string]) error {
		order = append(order, fmt.Sprint(t.Value, t.Attempt))
		if t.Value == "bad" && t.Attempt < 3 {
			return errBroken
		}
		return nil
	}))
	cfg.Backoff = job.Backoff{Base: 1, Max: 1} // due again at once
	enqueue(t, pool, job.Request{Kind: "k", Value: "bad"}, job.Request{Kind: "k", Value: "good"}, job.Request{Kind: "k", Value: "urgent", Priority: 1})
	d := pawltest.DrainOnce(t, pool, cfg)
	if !slices.Equal(order, []string{"urgent1", "bad1", "good1"}) {
		t.Errorf("in order %q", order)
	}
	if len(d.Done) != 2 || len(d.Retried) != 1 || len(d.Left) != 1 || d.Left[0].Attempts != 1 || d.Left[0].LastError != errBroken.Error() {
		t.Errorf("drained %v", d)
	}
	if left := pawltest.Enqueued[string](t, pool, "k", 1)[0]; left.Value != "bad" || left.Status != ops.StatusPending || len(left.Errors) != 1 {
		t.Errorf("left %+v", left)
	}
	if d := pawltest.DrainOnce(t, pool, cfg); len(d.Retried) != 1 || d.Retried[0].Attempt != 2 {
		t.Errorf("once more: %v", d)
	}
	if d := pawltest.Drain(t, pool, cfg); len(d.Done) != 1 || d.Done[0].Attempt != 3 {
		t.Errorf("to the end: %v", d)
	}
}

// Jobs that cannot run now are left and listed: jobs for later, snoozed jobs (also after a
// failure), jobs behind a dead letter or in a paused queue, and jobs of an unknown kind.
func TestDrain_LeavesWhatWaits(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]func(testing.TB, *pgxpool.Pool, job.Config) pawltest.Drained{"to the end": pawltest.Drain, "once": pawltest.DrainOnce} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t)
			cfg := working(
				job.Handle("k", func(context.Context, job.Task[string]) error { return nil }),
				job.HandleTx("early", func(_ context.Context, _ pgx.Tx, t job.Task[string]) error {
					if t.Value == "failing" && t.Attempt == 1 {
						return errBroken
					}
					return job.Snooze(time.Hour)
				}),
				job.Handle("dead", func(context.Context, job.Task[string]) error { return pawl.Final(errBroken) }),
			)
			cfg.Queues = []job.Queue{{Name: "q", Concurrency: 1}, {Name: "paused", Concurrency: 1}}
			if _, err := (ops.QueueRef{Name: "paused"}).Pause(t.Context(), pool, ops.By{Actor: "test", Reason: "test"}); err != nil {
				t.Fatal(err)
			}
			id := enqueue(t, pool, job.Request{Kind: "k", StartIn: time.Hour}, job.Request{Kind: "early"}, job.Request{Kind: "early", Value: "failing"},
				job.Request{Kind: "dead", Lane: "l"}, job.Request{Kind: "k", Lane: "l"}, job.Request{Kind: "k", Queue: "paused"}, job.Request{Kind: "strange"})
			d := drain(t, pool, cfg)
			var left []int64
			for _, j := range d.Left {
				left = append(left, j.ID)
			}
			slices.Sort(left)
			snoozed := id[1:3]
			if name == "once" {
				snoozed = id[1:2]
			}
			if want := slices.Concat(id[:3], id[4:]); len(d.Done) != 0 || !slices.Equal(left, want) || !slices.Equal(ids(d.Snoozed), snoozed) || !slices.Equal(ids(d.Dead), id[3:4]) {
				t.Errorf("drained %v", d)
			}
			if _, err := (ops.JobRef{ID: id[0]}).Retry(t.Context(), pool, ops.By{Actor: "test", Reason: "an hour has passed"}); err != nil {
				t.Fatal(err)
			}
			if d := drain(t, pool, cfg); !slices.Equal(ids(d.Done), id[:1]) {
				t.Errorf("after an hour: %v", d)
			}
		})
	}
}

// Drain runs all jobs of a lane, in order.
func TestDrain_Lanes(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	var order []string // a lane runs one at a time
	cfg := working(job.Handle("k", func(_ context.Context, t job.Task[string]) error {
		order = append(order, t.Value)
		if t.Value == "b" && t.Attempt == 1 {
			return errBroken
		}
		return nil
	}))
	for _, v := range []string{"a", "b", "c"} {
		enqueue(t, pool, job.Request{Kind: "k", Value: v, Lane: "l"})
	}
	if d := pawltest.Drain(t, pool, cfg); len(d.Done) != 3 || !slices.Equal(order, []string{"a", "b", "b", "c"}) {
		t.Errorf("%v, in order %q", d, order)
	}
}

// A handler that enqueues its own kind forever fails the test, and the message names it.
func TestDrain_EndsAnEndlessHandler(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	cfg := working(job.HandleTx("loop", func(ctx context.Context, tx pgx.Tx, t job.Task[string]) error {
		_, err := job.Enqueue(ctx, tx, job.Request{Queue: "q", Kind: "loop", Value: t.Value})
		return err
	}))
	enqueue(t, pool, job.Request{Kind: "loop"})
	said := judged(t, func(tb testing.TB) { pawltest.DrainWithin(tb, pool, cfg, time.Minute, 20) })
	if !strings.Contains(said, " attempts (map[loop:") || !strings.Contains(said, "does a handler enqueue its own kind forever?") || !strings.Contains(said, `kind "loop" in queue "q"`) {
		t.Errorf("said %q", said)
	}
}

// A handler that takes too long fails the test, and so does an invalid configuration.
func TestDrain_EndsInTime(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	cfg := working(job.Handle("slow", func(ctx context.Context, _ job.Task[string]) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	cfg.ShutdownTimeout = 10 * time.Millisecond
	enqueue(t, pool, job.Request{Kind: "slow"})
	said := judged(t, func(tb testing.TB) { pawltest.DrainWithin(tb, pool, cfg, 3*time.Second, 20) })
	if !strings.Contains(said, "after 3s and ") || !strings.Contains(said, "there is still work:") || !strings.Contains(said, `job 1, kind "slow" in queue "q": `) {
		t.Errorf("said %q", said)
	}
	if said := judged(t, func(tb testing.TB) { pawltest.Drain(tb, pool, job.Config{}) }); !strings.Contains(said, "the field Handlers is required") {
		t.Errorf("said %q", said)
	}
}

// A handler that panics, or ends its goroutine as FailNow does, has failed.
func TestDrain_HandlersThatDoNotReturn(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	cfg := working(job.Handle("panics", func(context.Context, job.Task[string]) error { panic("no") }),
		job.HandleTx("exits", func(context.Context, pgx.Tx, job.Task[string]) error {
			runtime.Goexit()
			return nil
		}))
	enqueue(t, pool, job.Request{Kind: "panics", MaxAttempts: 2}, job.Request{Kind: "exits", MaxAttempts: 2})
	if d := pawltest.Drain(t, pool, cfg); len(d.Retried) != 2 || len(d.Dead) != 2 || !strings.Contains(d.String(), "(panics), attempt 2: ") {
		t.Errorf("drained %v", d)
	}
}
