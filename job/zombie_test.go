package job_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/job"
)

// A process is stopped past its lease between claim and hold, and another finishes its job. When
// the process continues, it is rejected before its handler runs.
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
	// The event depends on whether Hold or the heartbeat is first.
	zombie.until("stale_write_refused job.finish", "wasted_work job.finish")
	c.wantEffects(1)

	c.enqueueMany(3, job.Request{}) // it continues to work
	c.untilDone()
	c.wantEffects(4)
}

// A process that stalled past its lease claims its job again, and the handlers of both attempts
// return at the same time. The newer attempt finishes the job, and the older is stale.
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

// silenced are the events of a zombie whose transaction the server has ended: its lease is lost, or
// its COMMIT has no reply.
var silenced = []string{"commit_unknown job.finish", "wasted_work job.finish"}

// A process is stopped with its transaction open, after it wrote its rows. It keeps the job's row
// locked until the server ends the idle transaction. Then another process finishes the job.
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

// A process is stopped past its lease after it wrote rows in its own transaction, which did not
// hold the job. Another process finishes the job. When the first continues, its Finish returns
// P4020, which aborts the transaction and its rows.
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

// A frozen process keeps the rows of its batch locked until the server ends the idle transaction.
// Then another process finishes all jobs, and the zombie's rows are rolled back.
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

// A batch stopped before hold is rejected job by job, and its handler is not called.
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

// A zombie's simple handler has its effect. Its finish is rejected, counted, and shown by explain.
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

// A process is killed at any point of its attempt. Another finishes the job, with one effect.
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
