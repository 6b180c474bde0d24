package job_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schema"
)

// As the application's role: a cancelled job does not run, and a rollback undoes the cancel.
func TestCancelByID_CountsIfTheTransactionCommits(t *testing.T) {
	t.Parallel()
	c := setupCrewOn(t, pawltest.URL(t, effects, schema.Roles(), "grant insert on effect to pawl_app"))
	kept, gone := c.enqueue(job.Request{Queue: "q", Kind: "k", StartIn: time.Hour}).ID, c.enqueue(job.Request{Queue: "q", Kind: "k", StartIn: time.Hour}).ID
	for id, commit := range map[int64]bool{kept: false, gone: true} {
		tx := c.begin()
		_, err := tx.Exec(t.Context(), "set local role pawl_app")
		c.must(err)
		got, err := job.CancelByID(t.Context(), tx, id)
		c.must(err)
		if want := (job.Changed{Done: true, Was: "pending"}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if commit {
			c.must(tx.Commit(t.Context()))
		} else {
			c.must(tx.Rollback(t.Context()))
		}
	}
	got, err := job.Reschedule(t.Context(), c.pool, kept, 0)
	c.must(err)
	if !got.Done || got.Was != "pending" {
		t.Errorf("rescheduled: %+v", got)
	}
	c.hire()
	c.until("the one that was not cancelled does not run", "select count(*) from pawl.job where status <> 'cancelled'", 0)
	c.wantEffects(1)
	c.wantCount("select count(*) from pawl.audit", 0)
	for _, id := range []int64{gone, kept, 4711} {
		got, err := job.CancelByID(t.Context(), c.pool, id)
		c.must(err)
		if was := map[int64]string{gone: "cancelled"}[id]; got.Done || got.Was != was || (got.Hint == "") != (was == "") {
			t.Errorf("job %d: %+v", id, got)
		}
	}
}

// The context of a running job ends, and the handler's result has no effect.
func TestCancelByID_TellsTheHandlerThatRuns(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	entered := make(chan struct{})
	c.handlers = []job.Handler{simple("k", func(ctx context.Context, _ job.Job) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	})}
	id := c.enqueue(job.Request{Queue: "q", Kind: "k"}).ID
	c.hire()
	<-entered
	if got, err := job.Reschedule(t.Context(), c.pool, id, 0); err != nil || got.Done || got.Was != "processing" {
		t.Errorf("rescheduled while it runs: %+v, %v", got, err)
	}
	got, err := job.CancelByID(t.Context(), c.pool, id)
	c.must(err)
	if want := (job.Changed{Done: true, Was: "processing"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	c.untilTrue("the worker lets go", func() bool {
		return c.counters.Count(pawl.EventCancelled) > 0 || c.counters.Count(pawl.EventStaleWriteRefused) > 0
	})
	c.wantCount("select count(*) from pawl.job where status = 'cancelled'", 1)
}

// Reschedule moves the start later or sooner. A negative wait or one above ten years is rejected.
func TestReschedule_MovesTheStart(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	id := c.enqueue(job.Request{Queue: "q", Kind: "k"}).ID
	for _, hours := range []int{2, 1, 0} {
		_, err := job.Reschedule(t.Context(), c.pool, id, time.Duration(hours)*time.Hour)
		c.must(err)
		c.wantCount("select round(extract(epoch from available_at - now()) / 3600) from pawl.job", hours)
	}
	for _, in := range []time.Duration{-time.Second, 11 * 365 * 24 * time.Hour} {
		if _, err := job.Reschedule(t.Context(), c.pool, id, in); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
			t.Errorf("in %v: %v", in, err)
		}
	}
}
