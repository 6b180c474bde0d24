package job_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/job"
)

// A process stopped past its lease between claim and hold: another one finishes its job, and when it wakes it is refused
// before its handler runs.
func TestZombie_StoppedBeforeHold(t *testing.T) {
	t.Parallel()
	for _, form := range formsOfOne {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			stoppedBeforeHold(t, form)
		})
	}
}

// formsOfOne are the forms whose transaction ends one job.
var formsOfOne = []string{"transactional", "sql", "then", "sql then"}

func stoppedBeforeHold(t *testing.T, form string) {
	c := setupCrew(t)
	c.enqueueMany(1, job.Request{})
	zombie := c.process(order{Form: form, Faults: "job.hold.before=stop"})
	zombie.untilStopped()
	c.wantCount("select count(*) from pawl.job where status = 'processing'", 1)
	c.process(order{})
	c.untilDone()
	c.wantEffects(1)
	zombie.wake()
	zombie.until("stale_write_refused job.finish", "wasted_work job.finish") // whether Hold or the heartbeat asks first
	c.wantEffects(1)

	c.enqueueMany(3, job.Request{}) // it lives on, among the others
	c.untilDone()
	c.wantEffects(4)
}

// A process that stood still past its lease claims its job anew, and then the handlers of both
// attempts return at the same time. The newer one has finished the job, and the older one is stale.
func TestZombie_BothAttemptsEndTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, swapped := range []bool{false, true} {
		b.enqueue(job.Request{Queue: "q", Kind: "k"})
		older := b.claim()
		b.dieAndSweep()
		b.exec("update pawl.job set available_at = now()")
		newer := b.claim()
		if older.ID != newer.ID || older.Fence >= newer.Fence {
			t.Fatalf("claimed %d with fence %d, then %d with fence %d", older.ID, older.Fence, newer.ID, newer.Fence)
		}
		both, want := []job.Job{older, newer}, []string{"stale", "finished"}
		if swapped {
			slices.Reverse(both)
			slices.Reverse(want)
		}
		if got := job.FinishTogether(b.pool, both...); !slices.Equal(got, want) {
			t.Errorf("swapped %v: %q, want %q", swapped, got, want)
		}
	}
}

// silenced are what a zombie may say whose transaction the server has ended: it learns either that its lease is gone, and
// commits nothing, or that nobody answers its COMMIT, and cannot know. The database does.
var silenced = []string{"commit_unknown job.finish", "wasted_work job.finish"}

// A process stopped with its transaction open, after it wrote its rows: it keeps the row locked, and so its job, until
// the server ends the silent transaction. Then another process finishes the job, and what the zombie wrote is gone.
func TestZombie_StoppedBeforeCommit(t *testing.T) {
	t.Parallel()
	for _, form := range formsOfOne {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			stoppedBeforeCommit(t, form)
		})
	}
}

func stoppedBeforeCommit(t *testing.T, form string) {
	c := setupCrew(t)
	c.enqueueMany(1, job.Request{})
	zombie := c.process(order{Form: form, Faults: "job.commit.before=stop"})
	zombie.untilStopped()
	c.wantCount("select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'", 1)
	c.process(order{})
	c.untilDone()
	c.wantEffects(1)
	zombie.wake()
	zombie.until(silenced...)
	c.wantEffects(1)

	c.enqueueMany(3, job.Request{})
	c.untilDone()
	c.wantEffects(4)
}

// A process stopped past its lease after it wrote its rows, in a transaction of its own that did not hold the job:
// another finishes the job; when it wakes, its Finish is P4020, which aborts the transaction, and its rows are gone.
func TestZombie_OwnTransactionIsRefused(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"own", "own sql"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.enqueueMany(1, job.Request{})
			zombie := c.process(order{Form: form, Freeze: true, Timeout: time.Minute})
			zombie.untilStopped()
			c.process(order{})
			c.untilDone()
			c.wantEffects(1)
			zombie.wake()
			if line := zombie.until("stale_write_refused job.finish"); !strings.Contains(line, "P4020") {
				t.Errorf("refused with %s", line)
			}
			c.wantEffects(1)
		})
	}
}

// In the batch form the rows of the jobs are locked from the start, so a frozen process keeps them until the server ends
// its silent transaction; then another finishes them all, and what the zombie wrote is gone.
func TestZombie_BatchStoppedBeforeCommit(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(20, job.Request{})
	zombie := c.process(order{Form: "batch", Concurrency: 20, Faults: "job.commit.before=stop"})
	zombie.untilStopped()
	c.wantCount("select count(*) from pawl.job where status = 'processing'", 20)
	c.process(order{Form: "batch", Concurrency: 20})
	c.untilDone()
	c.wantEffects(20)
	zombie.wake()
	zombie.until(silenced...)
	c.wantEffects(20)
}

// A batch stopped before it holds its rows is refused job by job when it wakes, and its handler is not entered.
func TestZombie_BatchStoppedBeforeHold(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(20, job.Request{})
	zombie := c.process(order{Form: "batch", Concurrency: 20, Faults: "job.hold.before=stop"})
	zombie.untilStopped()
	c.process(order{Form: "batch", Concurrency: 20})
	c.untilDone()
	c.wantEffects(20)
	zombie.wake()
	zombie.until("stale_write_refused job.hold", "wasted_work job.finish")
	c.wantEffects(20)
}

// In the simple form the handler's effect is outside our reach: a zombie's stays. Its finish is refused, counted, and told by the job's story.
func TestZombie_SimpleFinishIsRefused(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(1, job.Request{})
	zombie := c.process(order{Form: "simple", Faults: "job.finish.before=stop"})
	zombie.untilStopped()
	c.process(order{Form: "simple"})
	c.untilDone()
	c.wantCount("select count(*) from effect", 2)
	zombie.wake()
	zombie.until("stale_write_refused job.finish")
	c.until("the refusal is not recorded", "select 1 - count(*) from pawl.stale_write", 0)
	c.wantText("select string_agg(e.event || ' ' || (e.detail ->> 'fence'), ', ') from pawl_v1.explain((select w.key from pawl.stale_write as w)) as e where e.kind = 'job' and e.event <> 'gone'",
		"stale_write_refused 1")
}

// A process killed at any point of its attempt: another one finishes the job, with one effect.
func TestZombie_KilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"job.hold.before", "job.handle.before", "job.commit.before", "job.commit.after"} {
		for _, form := range []string{"transactional", "batch", "sql", "sql batch", "then", "sql then"} {
			t.Run(form+" "+point, func(t *testing.T) {
				t.Parallel()
				c := setupCrew(t)
				c.enqueueMany(3, job.Request{})
				dead := c.process(order{Form: form, Concurrency: 3, Faults: point + "=kill"})
				dead.wait()
				c.process(order{Form: form, Concurrency: 3})
				c.untilDone()
				c.wantEffects(3)
			})
		}
	}
}
