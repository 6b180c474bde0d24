package job_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
)

func (c *crew) setMode(mode string) {
	c.Helper()
	set := map[string]func(ops.QueueRef, context.Context, pawl.DB, ops.By) (ops.Result, error){
		ops.QueuePaused: ops.QueueRef.Pause, ops.QueueDraining: ops.QueueRef.Drain, ops.QueueRunning: ops.QueueRef.Resume}[mode]
	if _, err := set(ops.QueueRef{Name: "q"}, c.Context(), c.pool, ops.By{Actor: "test", Reason: "a reason"}); err != nil {
		c.Fatal(err)
	}
}

// A queue is paused while workers run. Running jobs end, and no job begins, not even by Process.
// After a resume the queue continues within a poll, without a restart.
func TestWorker_QueueIsPaused(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Poll = 200 * time.Millisecond
	c.concurrency = 2
	entered, proceed := make(chan struct{}, 100), make(chan struct{})
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		entered <- struct{}{}
		<-proceed
		return apply(ctx, tx, j)
	}
	c.enqueueMany(20, job.Request{})
	c.hire()
	<-entered
	<-entered
	c.setMode(ops.QueuePaused)
	close(proceed)
	c.until("what is held ends", "select count(*) from effect", 2)
	beat := "select count(*) from pawl.worker as w where w.seen_at > $1"
	// Two polls.
	since := one[time.Time](c, "select clock_timestamp() + interval '500 milliseconds'")
	c.untilTrue("the worker goes on", func() bool { return one[int](c, beat, since) > 0 })
	c.wantCount("select count(*) from effect", 2)
	c.wantCount("select count(*) from pawl.job where status = 'pending' and attempts = 0", 18)

	c.setMode(ops.QueueRunning)
	patience.Receive(t, "a job begins after the resume", entered)
	c.untilDone()
	c.wantEffects(20)
}

// A draining queue ends the jobs that were begun, through all their attempts, and begins no other.
func TestWorker_QueueIsDrained(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.concurrency = 4
	var draining atomic.Bool
	c.handler = func(ctx context.Context, tx pgx.Tx, j job.Job) error {
		if !draining.Load() || j.Attempt < 3 {
			return errors.New("not yet")
		}
		return apply(ctx, tx, j)
	}
	c.config.Backoff = job.Backoff{Base: 20 * time.Millisecond, Max: 50 * time.Millisecond}
	c.enqueueMany(5, job.Request{})
	c.hire()
	c.until("all five are begun", "select count(*) from pawl.job where attempts > 0", 5)
	c.setMode(ops.QueueDraining)
	c.enqueueMany(7, job.Request{})
	draining.Store(true)
	c.until("what was begun ends", "select count(*) from effect", 5)
	c.until("the view says that it is drained", "select q.processing + q.begun from pawl_v1.queues as q where q.name = 'q'", 0)
	c.wantCount("select count(*) from pawl.job where status = 'pending' and attempts = 0", 7)
	c.setMode(ops.QueueRunning)
	c.untilDone()
	c.wantEffects(12)
}

// A message that names a job of a paused queue can be acknowledged: the job runs after the resume.
func TestWorker_ProcessOfAPausedQueue(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.setMode(ops.QueuePaused)
	w, err := job.NewWorker(c.pool, job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{
		job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error { return apply(ctx, tx, t.Job) })}, Poll: 10 * time.Millisecond})
	c.must(err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	e, err := job.Enqueue(t.Context(), c.pool, job.Request{Queue: "q", Kind: "k"})
	c.must(err)
	c.untilTrue("the worker answers", func() bool {
		got, err := w.Process(t.Context(), e.ID)
		if err == nil && got != job.Paused {
			t.Errorf("got %s, want %s", got, job.Paused)
		}
		return !pawl.Retryable(err)
	})
	c.setMode(ops.QueueRunning)
	c.untilDone()
	stop()
	c.must(<-done)
	c.wantEffects(1)
}

func one[T any](c *crew, query string, args ...any) (value T) {
	c.Helper()
	c.must(c.pool.QueryRow(c.Context(), query, args...).Scan(&value))
	return value
}
