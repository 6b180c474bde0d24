package schematest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/stepper"
	"github.com/pawl-go/pawl/pawltest"
)

// One time-to-live for lease and memory forgets the key together with the lease (trap T1). Here the
// lease ends, the job is swept, done and deleted, and its key is a duplicate all the while.
func TestT1_LeaseAndMemoryAreApart(t *testing.T) {
	t.Parallel()
	const enqueue = `select e.outcome from pawl_v1.job_enqueue('q', 'k', '', '{"key": "x"}') as e`
	b := setup(t, "")
	b.is(enqueue, "enqueued")
	b.do("select pawl_v1.job_claim('q', null, 1, '{\"lease_ms\": 1000}')")
	b.is(enqueue, "duplicate")
	b.do(expireRows)
	b.is(enqueue, "duplicate")
	b.is(sweepAll, "1 0 0")
	b.is(enqueue, "duplicate")
	b.do("select pawl_v1.job_claim_id(1, null, '{\"early\": true}')")
	b.do("select pawl_v1.job_finish(1, 2)")
	b.is(enqueue, "duplicate")
	b.is(jobs, "")
}

// A waiter whose patience ends removes the live holder (trap T2). Here it is told 55P03, and the
// holder goes on.
func TestT2_ImpatienceHarmsNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', ''); select pawl_v1.job_claim('q', null)`)
	holder := b.open("holder")
	holder.Do("begin")
	b.same(holder.Do("select c.outcome from pawl_v1.inbox_claim('c', 'm', sha256('')) as c"), "processed")
	b.same(holder.Do("select h.outcome from pawl_v1.job_hold(1, 1) as h"), "held")
	for _, call := range []string{"inbox_claim('c', 'm', sha256(''))", "job_release(1, 1)", "job_finish(1, 1)"} {
		got := b.main.Do("select pawl_v1." + call)
		if got == stepper.Blocked {
			got = b.main.Wait()
		}
		b.same(got, "55P03")
	}
	b.same(holder.Do("select f.outcome from pawl_v1.job_finish(1, 1) as f"), "finished")
	b.same(holder.Do("commit"), "")
	b.is("select count(*), (select count(*) from pawl.job) from pawl.inbox", "1 0")
}

// After the lease another payload takes the key (trap T7). Here it is refused before and after.
func TestT7_LeaseEndOpensNoKey(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', 'a', '{"key": "x"}'); select pawl_v1.job_claim('q', null); `+expireRows)
	const other = `select e.outcome from pawl_v1.job_enqueue('q', 'k', 'b', '{"key": "x"}') as e`
	b.is(other, "P4002")
	b.is(sweepAll, "1 0 0")
	b.is(other, "P4002")
	b.is("select e.outcome from pawl_v1.job_enqueue_many('{q}', '{k}', '{b}', '{x}') as e", "P4002")
	b.is("select convert_from(j.payload, 'UTF8') from pawl.job as j", "a")
}

// A caller's clock never decides (trap T8, trap T62): no function takes a time, only durations.
// schedule_tick takes the moments of a plan, and asks the database's clock whether they are due:
// TestSchedule_CronTicksAreChecked.
func TestT8_NobodyPassesATime(t *testing.T) {
	t.Parallel()
	none(t, `select p.proname
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
   and p.proname not like '\_%'
   and p.proname <> 'schedule_tick'
   and p.proargtypes::oid[] && array['timestamptz', 'timestamp', 'date', 'time', 'timetz']::regtype[]::oid[]`)
}

// The time at which a transaction began is the past for whoever reads after its commit (trap T22):
// neither a function nor a default asks for it.
func TestT22_TimeIsReadWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	const began = `'\m(now|transaction_timestamp|statement_timestamp)\s*\(|\m(current_timestamp|localtimestamp|current_date|current_time)\M'`
	none(t, `select p.proname from pg_proc as p where p.pronamespace = 'pawl_v1'::regnamespace and p.prosrc ~* `+began+`
union all
select d.adrelid::regclass::text from pg_attrdef as d join pg_class as c on c.oid = d.adrelid
 where c.relnamespace = 'pawl'::regnamespace and pg_get_expr(d.adbin, d.adrelid) ~* `+began)
}

// No trigger, no rule, and no NOTIFY but in the two functions that notify only where a worker
// sleeps, and in the one that tells keepers of a schedule that was put or resumed: NOTIFY takes a
// lock of the whole server at the commit of work (trap T66). TestWake_OnlySleepers and
// TestWake_Keepers hold them to that.
func TestT66_NoTriggersNoNotify(t *testing.T) {
	t.Parallel()
	none(t, `select t.tgname::text from pg_trigger as t join pg_class as c on c.oid = t.tgrelid where c.relnamespace = 'pawl'::regnamespace
union all
select r.rulename::text from pg_rewrite as r join pg_class as c on c.oid = r.ev_class where c.relnamespace = 'pawl'::regnamespace
union all
select p.proname::text from pg_proc as p where p.pronamespace = 'pawl_v1'::regnamespace and p.proname not in ('_wake', '_wake_keepers', 'job_kick') and p.prosrc ~* '\m(pg_notify|notify|listen|job_kick)\M'`)
}

// none requires that a catalogue query finds nothing.
func none(t *testing.T, query string) {
	t.Helper()
	rows, err := pawltest.DB(t).Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// A delete or sweep without a bound holds its locks for as long as it likes (trap T24). Each call
// takes its limit, of the dead workers' jobs and of those with leases of their own, and says so.
func TestT24_SweepIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, `insert into pawl.worker (name) values ('w'); `+
		`select pawl_v1.job_enqueue_many(array_fill('q'::text, '{10}'), array_fill('k'::text, '{10}'), array_fill(''::bytea, '{10}'));
select pawl_v1.job_claim('q', 1, 5); select pawl_v1.job_claim('q', null, 5); `+expireRows+"; "+expireWorkers)
	for _, want := range []string{"6 0 0", "4 0 1", "0 0 0"} {
		b.is(`select s.requeued, s.dead_lettered, s.workers from pawl_v1.job_sweep('{k}', '{"limit": 3}') as s`, want)
	}
	b.is(`select pawl_v1.job_sweep('{k}', '{"limit": 0}')`, "P4004")
	b.is(`select pawl_v1.job_sweep('{k}', '{"limit": 100001}')`, "P4004")
}

// An attempt number that is forgiven on release would fence nothing (trap T59). The fence only
// grows.
func TestT59_RowLeasesToo(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', '')`)
	for _, want := range []string{"1 1 1", "1 2 1", "1 3 1"} {
		b.is(claimRow, want)
		b.do("select pawl_v1.job_release(1, j.fence) from pawl.job as j")
	}
}

// A rescue that overwrites what has moved on (trap T60): the sweep leaves alone a lease that was
// renewed, a job that was finished, and one whose holder has it open; and everything of a worker
// that lives.
func TestT60_SweepSeesRenewals(t *testing.T) {
	t.Parallel()
	duels(t, "update pawl.job set status = 'processing', claimed_by = 0, lease_expires_at = now() - interval '1 minute', fence = 1, attempts = 1",
		func(d *duel) {
			d.exactly(d.a.Do("select r.outcome from pawl_v1.job_renew(1, 1) as r"), "renewed")
			d.exactly(d.b.Do(sweep), "swept 0")
			d.a.Do("commit")
			d.want(d.b.Do(sweep), "swept 0")
			d.job("processing 1 0 0")
		})
	b := setup(t, `select pawl_v1.worker_register('alive'), pawl_v1.worker_register('dead'); select pawl_v1.job_enqueue_many('{q,q,q}', '{k,k,k}', '{a,a,a}');
select pawl_v1.job_claim('q', 1, 1); select pawl_v1.job_claim('q', 2, 1); select pawl_v1.job_claim('q', null, 1);
update pawl.worker set seen_at = now() - lease * 2 where id = 2`)
	b.is(sweepAll, "1 0 1")
	b.is("select j.id, j.status, j.claimed_by, j.crashes from pawl.job as j order by j.id", "1 processing 1 0, 2 pending <nil> 1, 3 processing 0 0")
}

// Losing the lease of a heartbeat must not open a second place while the first is taken (trap T63):
// the job of a worker that is silent and present stays its own until the lease is over, and its
// open transaction even longer.
func TestT63_SilenceAloneFreesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.worker_register('w'); select pawl_v1.job_enqueue('q', 'k', ''); select pawl_v1.job_claim('q', 1); "+silent)
	other := "select count(*) from pawl_v1.job_claim('q', null)"
	b.is(sweepAll, "0 0 0")
	b.is(other, "0")
	holder := b.open("holder")
	holder.Do("begin")
	b.same(holder.Do("select h.outcome from pawl_v1.job_hold(1, 1) as h"), "held")
	b.do(expireWorkers)
	b.is(sweepAll, "0 0 0")
	b.is(other, "0")
	holder.Do("rollback")
	b.is(sweepAll, "1 0 1")
}

// A crash marks the job failed (trap T64). Here it goes back, and only crashes of its own end it.
func TestT64_CrashOfARowLeaseIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', '', '{"max_attempts": 2}'); select pawl_v1.job_claim('q', null); `+expireRows)
	b.is(sweepAll, "1 0 0")
	b.is("select c.outcome, c.fence from pawl_v1.job_claim_id(1, null, '{\"early\": true}') as c", "claimed 2")
	b.is("select f.outcome from pawl_v1.job_finish(1, 2) as f", "finished")
}
