package schematest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// One time-to-live for lease and memory would forget the key with the lease (trap T1). Here the
// lease ends and the job is swept, finished and deleted. Its key stays a duplicate all the time.
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

// A waiter that times out must not remove the live holder (trap T2). Here it gets 55P03, and the
// holder continues.
func TestT2_ATimeoutHarmsNoHolder(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', ''); select pawl_v1.job_claim('q', null)`)
	holder := b.open("holder")
	holder.Do("begin")
	b.same(holder.Do("select c.outcome from pawl_v1.inbox_claim('c', 'm', sha256('')) as c"), "processed")
	b.same(holder.Do("select h.outcome from pawl_v1.job_hold(1, 1) as h"), "held")
	for _, call := range []string{"inbox_claim('c', 'm', sha256(''))", "job_release(1, 1)", "job_finish(1, 1)"} {
		got := b.main.Do("select pawl_v1." + call)
		if got == blocked {
			got = b.main.Wait()
		}
		b.same(got, "55P03")
	}
	b.same(holder.Do("select f.outcome from pawl_v1.job_finish(1, 1) as f"), "finished")
	b.same(holder.Do("commit"), "")
	b.is("select count(*), (select count(*) from pawl.job) from pawl.inbox", "1 0")
}

// After the lease, another payload must not take the key (trap T7). Here it is refused before and
// after.
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

// A caller's clock never decides (traps T8, T62). The functions accept durations, not times.
// schedule_tick accepts a plan's times and compares them with the database's clock: see
// TestSchedule_CronTicksAreChecked.
func TestT8_FunctionsAcceptNoTime(t *testing.T) {
	t.Parallel()
	none(t, `select p.proname
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
   and p.proname not like '\_%'
   and p.proname <> 'schedule_tick'
   and p.proargtypes::oid[] && array['timestamptz', 'timestamp', 'date', 'time', 'timetz']::regtype[]::oid[]`)
}

// For a reader after the commit, the transaction's start time lies in the past (trap T22). Neither
// a function nor a default uses it.
func TestT22_TimeIsReadWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	const began = `'\m(now|transaction_timestamp|statement_timestamp)\s*\(|\m(current_timestamp|localtimestamp|current_date|current_time)\M'`
	none(t, `select p.proname from pg_proc as p where p.pronamespace = 'pawl_v1'::regnamespace and p.prosrc ~* `+began+`
union all
select d.adrelid::regclass::text from pg_attrdef as d join pg_class as c on c.oid = d.adrelid
 where c.relnamespace = 'pawl'::regnamespace and pg_get_expr(d.adbin, d.adrelid) ~* `+began)
}

// There are no triggers and no rules. NOTIFY takes a server-wide lock at commit (trap T66). Only
// three functions use it: two that notify only if a worker sleeps, and one that tells keepers about
// a put or resumed schedule. TestWake_OnlySleepers and TestWake_Keepers check these.
func TestT66_NoTriggersNoNotify(t *testing.T) {
	t.Parallel()
	none(t, `select t.tgname::text from pg_trigger as t join pg_class as c on c.oid = t.tgrelid where c.relnamespace = 'pawl'::regnamespace
union all
select r.rulename::text from pg_rewrite as r join pg_class as c on c.oid = r.ev_class where c.relnamespace = 'pawl'::regnamespace
union all
select p.proname::text from pg_proc as p where p.pronamespace = 'pawl_v1'::regnamespace and p.proname not in ('_wake', '_wake_keepers', 'job_kick') and p.prosrc ~* '\m(pg_notify|notify|listen|job_kick)\M'`)
}

// none requires that a catalogue query returns no row.
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

// An unbounded delete or sweep holds its locks for too long (trap T24). Each call has a limit for
// the jobs of dead workers and for jobs with their own leases, and returns how many it took.
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

// An attempt number that a release decrements would not fence (trap T59). The fence only grows.
func TestT59_RowLeasesToo(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', '')`)
	for _, want := range []string{"1 1 1", "1 2 1", "1 3 1"} {
		b.is(claimRow, want)
		b.do("select pawl_v1.job_release(1, j.fence) from pawl.job as j")
	}
}

// A sweep must not overwrite newer changes (trap T60). It leaves alone a renewed lease, a finished
// job, a job that its holder has open in a transaction, and all jobs of a live worker.
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

// A missed heartbeat must not allow a second attempt during the first (trap T63). The job of a
// silent but present worker stays its own until the lease ends, and longer while its transaction is
// open.
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

// A crash must not fail the job (trap T64). Here the job is retried, and only its own crashes end
// it.
func TestT64_CrashOfARowLeaseIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', '', '{"max_attempts": 2}'); select pawl_v1.job_claim('q', null); `+expireRows)
	b.is(sweepAll, "1 0 0")
	b.is("select c.outcome, c.fence from pawl_v1.job_claim_id(1, null, '{\"early\": true}') as c", "claimed 2")
	b.is("select f.outcome from pawl_v1.job_finish(1, 2) as f", "finished")
}
