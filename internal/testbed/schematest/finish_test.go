package schematest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// fourHeld has jobs 1 to 4, held with fence 1 by worker 1. Job 4 was taken over since.
const fourHeld = `insert into pawl.worker (name) values ('w'); insert into pawl.job (queue, kind, payload) select 'q', 'k', '' from generate_series(1, 4);
select pawl_v1.job_claim('q', 1); update pawl.job set fence = 2 where id = 4`

// Each job has its own outcome. For a row that another transaction has locked, the function waits
// and then returns locked.
func TestHoldMany_Outcomes(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	other := b.open("other")
	other.Do("begin; select from pawl.job where id = 2 for update")
	b.do("begin")
	b.waits("select h.id, h.outcome from pawl_v1.job_hold_many('{3,2,1,4,99}', '{1,1,1,1,1}') as h",
		"1 held, 2 locked, 3 held, 4 stale, 99 stale")
	// Held until the transaction ends.
	b.same(other.Do("select from pawl.job where id in (1, 3) for update skip locked"), "")
	b.do("commit")
	b.is("select count(*) from pawl_v1.job_hold_many('{}', '{}') as h", "0")
	b.is("select pawl_v1.job_hold_many('{1,2}', '{1}')", "P4004")
	b.is("select pawl_v1.job_hold_many(array_fill(1::bigint, '{501}'), array_fill(1::bigint, '{501}'))", "P4004")
}

// waits requires the result of a query that waits until a lock timeout.
func (b *bed) waits(query, want string) {
	b.Helper()
	got := b.main.Do(query)
	if got == blocked {
		got = b.main.Wait()
	}
	b.same(got, want)
}

// One stale job aborts the transaction with all its rows.
func TestFinishMany_StrictAbortsAll(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table effects (id int); "+fourHeld)
	for ids, detail := range map[string]string{"{1,4}": "superseded", "{1,99}": "absent"} {
		b.do("begin")
		b.do("insert into effects values (1)")
		b.is("select pawl_v1.job_finish_many('"+ids+"', '{1,1}')", "P4020")
		b.do("commit")
		if err := b.refusal("select pawl_v1.job_finish_many('" + ids + "', '{1,1}')"); err.Detail != detail {
			t.Errorf("%s: %s, want %s", ids, err.Detail, detail)
		}
	}
	b.is("select count(*), (select count(*) from effects) from pawl.job", "4 0")
	b.is("select f.id, f.outcome from pawl_v1.job_finish_many('{3,1}', '{1,1}') as f", "1 finished, 3 finished")
	b.is("select j.id from pawl.job as j order by j.id", "2, 4")
}

// A locked row does not prove that the holder lost the job. The call fails with 55P03 and can be
// retried, like job_finish after its wait.
func TestFinishMany_LockedIsNotLost(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	other := b.open("other")
	other.Do("begin; select from pawl.job where id = 2 for update")
	b.waits("select pawl_v1.job_finish_many('{1,2}', '{1,1}')", "55P03")
	b.waits(`select f.id, f.outcome from pawl_v1.job_finish_many('{1,2}', '{1,1}', '{"skip_stale": true}') as f`, "1 finished, 2 locked")
	other.Do("rollback")
	b.is("select f.id, f.outcome from pawl_v1.job_finish_many('{2}', '{1}') as f", "2 finished")
}

// With skip_stale the other jobs are finished.
func TestFinishMany_SkipStale(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	b.is(`select f.id, f.outcome from pawl_v1.job_finish_many('{4,3,99,1}', '{1,1,1,1}', '{"skip_stale": true}') as f`,
		"1 finished, 3 finished, 4 stale, 99 stale")
	b.is("select j.id from pawl.job as j order by j.id", "2, 4")
	b.is(`select pawl_v1.job_finish_many('{1}', '{1}', '{"skipstale": true}')`, "P4004")
}

// With two attempts of one job in a batch, the stale attempt does not pass because of the newer one
// (traps T57, T25).
func TestT57_BatchTellsAttemptsApart(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	const both = "'{4,4}', '{1,2}'"
	b.is("select h.id, h.outcome from pawl_v1.job_hold_many("+both+") as h order by h.outcome", "4 held, 4 stale")
	b.is("select pawl_v1.job_finish_many("+both+")", "P4020")
	b.is("select f.id, f.outcome from pawl_v1.job_finish_many("+both+`, '{"skip_stale": true}') as f order by f.outcome`, "4 finished, 4 stale")
}

// Two batches of the same jobs in opposite order do not deadlock, because both lock by id.
func TestFinishMany_ReversedBatches(t *testing.T) {
	t.Parallel()
	duels(t, "delete from pawl.job; "+`insert into pawl.job (id, queue, kind, payload, status, claimed_by, fence) overriding system value
select i, 'q', 'k', '', 'processing', 1, 1 from generate_series(11, 12) as i`, func(d *duel) {
		d.exactly(d.a.Do("select f.id, f.outcome from pawl_v1.job_finish_many('{12,11}', '{1,1}', '{\"skip_stale\": true}') as f"), "11 finished, 12 finished")
		d.exactly(d.b.Do("select f.id, f.outcome from pawl_v1.job_finish_many('{11,12}', '{1,1}', '{\"skip_stale\": true}') as f"), blocked)
		d.exactly(d.b.Wait(), "11 locked, 12 locked") // after a quarter of a second
		d.a.Do("commit")
		d.want(d.b.Do("select f.id, f.outcome from pawl_v1.job_finish_many('{11,12}', '{1,1}', '{\"skip_stale\": true}') as f"), "11 stale, 12 stale")
	})
}

// A job that is taken over during a batch is not deleted by it, because the delete checks the row
// (trap T25).
func TestT25_ReclaimedJobSurvivesABatch(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	late := b.open("late")
	late.Do("begin isolation level " + string(pgx.ReadCommitted))
	late.Do("select count(*) from pawl.job")
	b.do("select pawl_v1.job_release(2, 1)")
	b.do("select pawl_v1.job_claim('q', 1)")
	b.same(late.Do(`select f.id, f.outcome from pawl_v1.job_finish_many('{1,2}', '{1,1}', '{"skip_stale": true}') as f`), "1 finished, 2 stale")
	late.Do("commit")
	b.is("select j.status, j.fence from pawl.job as j where j.id = 2", "processing 2")
}

// A handler can cancel its job: it is no dead letter, its payload and errors stay, and it is not
// claimed again.
func TestFail_Cancel(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	b.is(`select f.outcome, f.attempts from pawl_v1.job_fail(1, 1, '{"error": "order withdrawn"}', '{"cancel": true}') as f`, "cancelled 1")
	b.is("select j.status, j.claimed_by, j.last_errors -> 0 ->> 'error' from pawl.job as j where j.id = 1", "cancelled <nil> order withdrawn")
	b.is("select count(*) from pawl_v1.dead_letters", "0")
	b.is("select c.outcome, c.detail ->> 'status' from pawl_v1.job_claim_id(1, 1) as c", "ended cancelled")
	if err := b.refusal("select pawl_v1.job_finish(1, 1)"); err.Code != "P4020" || err.Detail != "cancelled" {
		t.Errorf("got %s %s", err.Code, err.Detail)
	}
	b.is(`select f.outcome from pawl_v1.job_fail(2, 1, '{}', '{"cancel": true, "final": true}') as f`, "cancelled")
	b.is(`select pawl_v1.job_fail(4, 1, '{}', '{"cancel": true}')`, "P4020")
}

// A job can be released with a delay, without being charged. A later time that is already set is
// kept.
func TestRelease_RetryIn(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	b.is(`select r.outcome from pawl_v1.job_release(1, 1, '{"retry_in_ms": 3600000}') as r`, "released")
	b.is("select c.outcome from pawl_v1.job_claim_id(1, 1) as c", "not_due")
	b.is("select j.attempts, j.fence, round(extract(epoch from j.available_at - clock_timestamp()) / 60)::int from pawl.job as j where j.id = 1", "0 1 60")
	b.do(`select pawl_v1.job_claim_id(1, 1, '{"early": true}')`)
	b.is(`select r.outcome from pawl_v1.job_release(1, 2) as r`, "released")
	b.is("select round(extract(epoch from j.available_at - clock_timestamp()) / 60)::int from pawl.job as j where j.id = 1", "60")
	b.is(`select r.outcome from pawl_v1.job_release(4, 1, '{"retry_in_ms": 0}') as r`, "not_held")
	b.is(`select pawl_v1.job_release(2, 1, '{"retry_in_ms": -1}')`, "P4004")
	b.is(`select pawl_v1.job_release(2, 1, '{"retry": 1}')`, "P4004")
}

// Every end of an attempt requires its fence, with a worker or without (trap T3).
func TestT3_EveryEndNamesItsFence(t *testing.T) {
	t.Parallel()
	for _, holder := range []string{"1", "null"} {
		b := setup(t, "insert into pawl.worker (name) values ('w'); select pawl_v1.job_enqueue('q', 'k', ''); select pawl_v1.job_claim('q', "+holder+")")
		before := b.main.Do(jobs)
		for _, fence := range []string{"0", "2", "null"} {
			for _, call := range []string{"job_hold(1, " + fence + ")", "job_finish(1, " + fence + ")", "job_fail(1, " + fence + ", '{}')",
				"job_renew(1, " + fence + ")", "job_finish_many('{1}', '{" + fence + "}')"} {
				b.is("select pawl_v1."+call, "P4020")
			}
			b.is("select r.outcome from pawl_v1.job_release(1, "+fence+") as r", "not_held")
			b.is("select h.outcome from pawl_v1.job_hold_many('{1}', '{"+fence+"}') as h", "stale")
		}
		b.is(jobs, before)
	}
}

// A released job keeps its time. A job that was claimed early is due at its original time, and one
// that was due is due at once.
func TestRelease_KeepsTheTime(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	b.do("update pawl.job set available_at = now() + interval '1 hour' where id = 1")
	b.do("update pawl.job set available_at = now() - interval '1 hour' where id = 2")
	b.is("select r.outcome from generate_series(1, 2) as g, pawl_v1.job_release(g, 1) as r", "released, released")
	b.is("select j.id, j.available_at > now() + interval '59 minutes', j.available_at <= clock_timestamp() from pawl.job as j where j.id < 3 order by j.id",
		"1 true false, 2 false true")
}

// A rollback undoes job_open. job_close works only in the transaction of job_open.
func TestOpen_EndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	b.is("select pawl_v1.job_open(4, 1)", "P4020")
	b.do("begin")
	b.is("select o.outcome from pawl_v1.job_open(1, 1, 60000) as o", "ended")
	b.is("select pawl_v1.job_hold(1, 1)", "P4020")
	b.do("rollback")
	b.is("select h.outcome from pawl_v1.job_hold(1, 1) as h", "held")
	b.do("begin")
	b.do("create temp table opened as select o.* from pawl_v1.job_open(1, 1) as o")
	b.is("select c.outcome from opened as o, pawl_v1.job_close(1, 1, o.outcome, o.xact, o.lane) as c", "finished")
	b.do("commit and chain")
	b.is("select pawl_v1.job_close(1, 1, o.outcome, o.xact, o.lane) from opened as o", "25000")
	b.do("rollback")
	b.do("begin")
	b.do("create temp table kept as select o.* from pawl_v1.job_open(2, 1, null, true) as o")
	b.is("select k.outcome, (select count(*) from pawl.job as j where j.id = 2) from kept as k", "kept 1")
	// It would be reported as finished without being finished.
	for _, outcome := range []string{"'ended'", "'Kept'", "null"} {
		b.do("savepoint a")
		b.is("select pawl_v1.job_close(2, 1, "+outcome+", k.xact, k.lane) from kept as k", "P4004")
		b.do("rollback to a")
	}
	b.is("select c.outcome from kept as k, pawl_v1.job_close(2, 1, k.outcome, k.xact, k.lane) as c", "finished")
	b.do("commit")
	b.is("select count(*) from pawl.job as j where j.id in (1, 2)", "0")
}

// After a rollback to a savepoint before job_open, the job cannot be closed. Otherwise the rows
// after it would commit and the job would run again.
func TestOpen_BehindASavepointIsNotClosedAfterARollbackToIt(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	b.do("begin; savepoint mine")
	b.do("create temp table opened as select o.* from pawl_v1.job_open(1, 1) as o")
	xact := b.main.Do("select o.xact from opened as o")
	b.do("rollback to mine")
	b.is("select pawl_v1.job_close(1, 1, 'ended', '"+xact+"', null)", "25000")
	b.do("rollback")
	b.do("begin; savepoint mine")
	b.is("select c.outcome from pawl_v1.job_open(1, 1) as o, pawl_v1.job_close(1, 1, o.outcome, o.xact, o.lane) as c", "finished")
	b.do("commit")
	b.is("select count(*) from pawl.job as j where j.id = 1", "0")
}
