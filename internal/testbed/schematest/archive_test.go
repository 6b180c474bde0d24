package schematest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/schema"
)

// eightHeld has jobs 1 to 4 of queue q, which has an archive, and 5 to 8 of queue z, which has
// none. All are held with fence 1.
const eightHeld = `select pawl_v1.queue_set('q', '{"archive": true}', 'ann', 'the auditors ask');
select pawl_v1.job_enqueue(case when n <= 4 then 'q' else 'z' end, 'k', 'payload', '{"headers": {"tenant": "acme"}}') from generate_series(1, 8) as n;
select pawl_v1.job_claim('q', null), pawl_v1.job_claim('z', null)`

const (
	archived  = "select a.id from pawl_v1.archive as a order by a.id"
	sweepRing = "select s.outcome, s.emptied, s.detail from pawl_v1.archive_sweep() as s"
)

// A ringDay is a day of the ring, identified by the number of the table that finishes write to. Its
// clock is stopped at noon, so no test depends on the date.
type ringDay int

// everyDay runs a test on each of the eight days, to find defects that appear on one day only.
func everyDay(t *testing.T, test func(t *testing.T, day ringDay)) {
	t.Helper()
	for day := range ringDay(8) {
		t.Run(fmt.Sprintf("archive_%d", day), func(t *testing.T) {
			t.Parallel()
			test(t, day)
		})
	}
}

// noon returns the day's time in SQL. Day 20,000 since 1970 writes to archive_0.
func (d ringDay) noon() string { return fmt.Sprintf("to_timestamp(%d)", (20_000+int(d))*86_400+43_200) }

// stopped returns a script that stops the clock of the archive's functions at noon.
func (d ringDay) stopped() string {
	return edited("_archive", "clock_timestamp()", d.noon()) + ";" + edited("archive_sweep", "clock_timestamp()", d.noon())
}

// table returns the number of the table of some days ago.
func (d ringDay) table(ago int) string { return fmt.Sprint((int(d) + 800 - ago) % 8) }

// rows returns a script that stops the clock and inserts, for each of some days ago, a row into
// that day's table.
func (d ringDay) rows(days ...int) string {
	script := d.stopped()
	for _, ago := range days {
		script += fmt.Sprintf("; insert into pawl.archive_%s select %d, 1, null, now(), %s - interval '%[2]d days', 2, 1, 0, 'q', 'k', null, '', null",
			d.table(ago), ago, d.noon())
	}
	return script
}

// By default no form of finish archives a job.
func TestArchive_OffByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	b.do("select pawl_v1.job_finish(1, 1)")
	b.do("select pawl_v1.job_finish_many('{2,3}', '{1,1}')")
	b.is("select count(*), (select count(*) from pawl.job) from pawl_v1.archive as a", "0 1")
}

// Every form of finish archives the job unchanged in today's table, but no job of a queue without
// an archive.
func TestArchive_EveryFormOfFinish(t *testing.T) {
	t.Parallel()
	day := ringDay(3)
	b := setup(t, day.stopped()+";"+eightHeld)
	b.is("select f.outcome from pawl_v1.job_finish(1, 1) as f", "finished")
	b.is("select f.outcome from pawl_v1.job_finish(5, 1) as f", "finished")
	b.is("select f.id, f.outcome from pawl_v1.job_finish_many('{6,2}', '{1,1}') as f", "2 finished, 6 finished")
	b.is(`select f.id, f.outcome from pawl_v1.job_finish_many('{99,7,3,4}', '{1,1,1,9}', '{"skip_stale": true}') as f`,
		"3 finished, 4 stale, 7 finished, 99 stale")
	b.is(archived, "1, 2, 3")
	b.is("select j.id from pawl.job as j order by j.id", "4, 8")
	b.is(`select a.queue, a.kind, convert_from(a.payload, 'UTF8'), a.headers ->> 'tenant', a.priority, a.attempts, a.crashes, a.fence,
       a.lane, a.position, a.finished_at = `+day.noon()+`
  from pawl_v1.archive as a where a.id = 1`, "q k payload acme 2 1 0 1 <nil> <nil> true")
	b.is("select count(*) from pawl.archive_"+day.table(0), "3")
	b.is("select pawl_v1.job_finish(1, 1)", "P4020")
}

// A stale finish of an archived queue leaves no row, in any form of finish.
func TestArchive_StaleFinishKeepsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, eightHeld+"; update pawl.job set fence = 2 where id = 1")
	b.is("select pawl_v1.job_finish(1, 1)", "P4020")
	b.is("select pawl_v1.job_finish_many('{1,2}', '{1,1}')", "P4020")
	b.is(`select f.id, f.outcome from pawl_v1.job_finish_many('{1}', '{1}', '{"skip_stale": true}') as f`, "1 stale")
	b.is(archived, "")
	b.is("select f.outcome from pawl_v1.job_finish(1, 2) as f", "finished")
	b.is("select a.id, a.fence from pawl_v1.archive as a", "1 2")
}

// A finish that waits for the row's lock archives the job when it gets the lock.
func TestArchive_FinishWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, patient+eightHeld)
	other := b.open("other")
	other.Do("begin; select from pawl.job where id = 1 for update")
	if got := b.main.Do("select f.outcome from pawl_v1.job_finish(1, 1) as f"); got != blocked {
		t.Fatal(got)
	}
	other.Do("commit")
	b.same(b.main.Wait(), "finished")
	b.is(archived, "1")
}

// The archive row, the effect and the end of the job commit together.
func TestArchive_CommitsWithTheEffect(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table effects (id int); "+eightHeld)
	const counts = "select count(*), (select count(*) from effects), (select count(*) from pawl.job as j where j.queue = 'q') from pawl_v1.archive as a"
	for _, finish := range []string{"job_finish(1, 1)", "job_finish_many('{1}', '{1}')"} {
		b.do("begin")
		b.do("insert into effects values (1)")
		b.do("select pawl_v1." + finish)
		b.is(counts, "1 1 3")
		b.do("rollback")
		b.is(counts, "0 0 4")
	}
	b.do("begin isolation level repeatable read")
	b.do("insert into effects values (1)")
	b.do("select pawl_v1.job_finish(1, 1)")
	b.do("select pawl_v1.job_finish_many('{2}', '{1}')")
	b.do("commit")
	b.is(counts, "2 1 2")
}

// The archive row contains the lane's name, although the lane's own row is purged earlier.
// Finishing promotes the next job as usual.
func TestArchive_Lanes(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.queue_set('q', '{"archive": true}', 'ann', 'r');
select pawl_v1.job_enqueue('q', 'k', '', '{"lane": "account-17"}') from generate_series(1, 3);
select pawl_v1.job_claim('q', null)`)
	b.is("select f.detail from pawl_v1.job_finish(1, 1) as f", "map[promoted:1]")
	b.do("select pawl_v1.job_claim('q', null)")
	b.is("select f.detail from pawl_v1.job_finish_many('{2}', '{1}') as f", "map[promoted:1]")
	b.do("select pawl_v1.job_claim('q', null)")
	b.do("select pawl_v1.job_finish(3, 1)")
	b.is("select p.purged from pawl_v1.lane_purge() as p", "1")
	b.is("select a.id, a.lane, a.position from pawl_v1.archive as a order by a.position", "1 account-17 1, 2 account-17 2, 3 account-17 3")
}

// A session's first finish locks only the table of the day, on each day. An earlier version also
// locked archive_0, and waited for its sweep on one day of eight.
func TestArchive_FinishLocksTheTableOfTheDay(t *testing.T) {
	t.Parallel()
	everyDay(t, func(t *testing.T, day ringDay) {
		b := setup(t, day.stopped()+";"+eightHeld)
		others := b.open("holds the other seven")
		others.Do("begin")
		for ago := 1; ago < 8; ago++ {
			b.same(others.Do("lock table pawl.archive_"+day.table(ago)+" in access exclusive mode"), "")
		}
		for _, finish := range []string{"job_finish(1, 1)", "job_finish_many('{2}', '{1}')", `job_finish_many('{3}', '{1}', '{"skip_stale": true}')`} {
			b.same(b.open(finish).Do("select f.outcome from pawl_v1."+finish+" as f"), "finished")
		}
	})
}

// No function uses the row type of an archive table for a result, an argument or a variable. Such a
// function locks that table in each session.
func TestArchive_NoFunctionNamesATableAsAType(t *testing.T) {
	t.Parallel()
	const named = `select coalesce(string_agg(p.proname, ', '), '')
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
   and (exists (select from unnest(array[p.prorettype] || p.proargtypes::oid[] || p.proallargtypes) as a (type)
                  join pg_type as t on t.oid = a.type
                  left join pg_type as e on e.oid = t.typelem
                  join pg_class as c on c.oid in (t.typrelid, e.typrelid)
                 where c.relname ~ '^archive_\d')
        or p.prosrc ~ '\marchive_\d(%rowtype|\.\w+%type|\[\]|\s*(;|:=|\)))')`
	b := setup(t, "")
	b.is(named, "")
	for name, function := range map[string]string{
		"result":   "create function pawl_v1.f() returns setof pawl.archive_3 language sql as 'select * from pawl.archive_3'",
		"array":    "create function pawl_v1.f() returns pawl.archive_3[] language sql as 'select null::pawl.archive_3[]'",
		"argument": "create function pawl_v1.f(p pawl.archive_3) returns int language sql return 1",
		"column":   "create function pawl_v1.f(out a int, out b pawl.archive_3) language sql as 'select 1, null::pawl.archive_3'",
		"variable": "create function pawl_v1.f() returns int language plpgsql as 'declare v pawl.archive_3; begin return 1; end'",
		"rowtype":  "create function pawl_v1.f() returns int language plpgsql as 'declare v pawl.archive_3%rowtype; begin return 1; end'",
	} {
		b.do("begin")
		b.do(function)
		if got := b.main.Do(named); got != "f" {
			t.Errorf("%s: got %q", name, got)
		}
		b.do("rollback")
	}
}

// The ring keeps today and the six days before it, and the sweep empties older tables.
func TestArchiveSweep_Wraps(t *testing.T) {
	t.Parallel()
	everyDay(t, func(t *testing.T, day ringDay) {
		b := setup(t, day.rows(0, 1, 2, 3, 4, 5, 6, 7))
		b.is(sweepRing, "swept 1 map[]")
		b.is(archived, "0, 1, 2, 3, 4, 5, 6")
		b.is(sweepRing, "swept 0 map[]")
		b.is(archived, "0, 1, 2, 3, 4, 5, 6")
	})
}

// After weeks without a sweep, every table with only old rows is emptied, except today's.
func TestArchiveSweep_AfterAPause(t *testing.T) {
	t.Parallel()
	everyDay(t, func(t *testing.T, day ringDay) {
		b := setup(t, day.rows(8, 9, 10, 11, 20))
		b.is(sweepRing, "swept 4 map[]")
		b.is(archived, "8")
	})
}

// A clock that was wrong for a while loses no young row. A table is emptied only if each of its
// rows is old, independent of the calendar.
func TestArchiveSweep_YoungRowInAnOldTable(t *testing.T) {
	t.Parallel()
	everyDay(t, func(t *testing.T, day ringDay) {
		b := setup(t, day.rows(7))
		due := "pawl.archive_" + day.table(7)
		for _, finished := range []string{day.noon() + " + interval '3 days'", day.noon() + " - interval '6 days'"} {
			b.do("insert into " + due + " select 99, a.fence, a.position, a.created_at, " + finished +
				", a.priority, a.attempts, a.crashes, 'another', a.kind, a.lane, a.payload, a.headers from " + due + " as a")
			b.is(sweepRing, "swept 0 map[]")
			b.is(archived, "7, 99")
			b.do("delete from " + due + " where id = 99")
		}
		b.is(sweepRing, "swept 1 map[]")
	})
}

// A sweep gives up on a table that another transaction holds. Neither a finish nor a writer behind
// the sweep waits for that transaction. Nothing is lost, and the next sweep empties the table.
func TestArchiveSweep_Busy(t *testing.T) {
	t.Parallel()
	everyDay(t, func(t *testing.T, day ringDay) {
		b := setup(t, day.rows(7)+";"+eightHeld)
		due := day.table(7)
		insert := func(id int) string {
			return fmt.Sprintf("insert into pawl.archive_%s select %d, 1, null, now(), %s - interval '7 days', 2, 1, 0, 'q', 'k', null, '', null", due, id, day.noon())
		}
		old := b.open("a finish that was open for a week")
		old.Do("begin")
		old.Do(insert(71))
		late, finish := b.open("late"), b.open("finish")
		sweeping := b.main.Do(sweepRing)
		behind := late.Do(insert(72)) // waits for the sweep, which waits for old
		b.same(finish.Do("select f.outcome from pawl_v1.job_finish(1, 1) as f"), "finished")
		if sweeping == blocked {
			sweeping = b.main.Wait()
		}
		b.same(sweeping, "busy 0 map[busy:["+due+"]]")
		if behind == blocked {
			behind = late.Wait()
		}
		b.same(behind, "")
		old.Do("commit")
		b.is(archived, "1, 7, 71, 72")
		b.is(sweepRing, "swept 1 map[]")
		b.is(archived, "1")
	})
}

// The function itself contains the bound, because tests cannot tell 50 ms from a slow machine.
func TestArchiveSweep_WaitsFor50ms(t *testing.T) {
	t.Parallel()
	setup(t, "").is("select p.proconfig from pg_proc as p where p.oid = 'pawl_v1.archive_sweep'::regproc", "[search_path=pg_catalog, pg_temp lock_timeout=50ms]")
}

// Of two concurrent sweeps, one returns busy or finds nothing to do.
func TestArchiveSweep_TwoAtOnce(t *testing.T) {
	t.Parallel()
	everyDay(t, func(t *testing.T, day ringDay) {
		b := setup(t, day.rows(0, 7))
		other := b.open("other")
		other.Do("begin")
		b.same(other.Do(sweepRing), "swept 1 map[]")
		got := b.main.Do(sweepRing)
		if got == blocked {
			got = b.main.Wait()
		}
		b.same(got, "busy 0 map[busy:["+day.table(7)+"]]")
		other.Do("commit")
		b.is(sweepRing, "swept 0 map[]")
		b.is(archived, "0")
	})
}

// TRUNCATE removes rows that a snapshot does not show, so the sweep requires READ COMMITTED.
func TestArchiveSweep_NeedsReadCommitted(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	for _, level := range []string{"repeatable read", "serializable"} {
		b.do("begin isolation level " + level)
		b.is(sweepRing, "P4004")
		b.do("rollback")
	}
}

// queue_set returns the previous settings and audits each change, and nothing else.
func TestQueueSet(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	const set = "select s.outcome, s.detail from pawl_v1.queue_set('%s', '%s', 'ann', 'why') as s"
	for _, c := range []struct{ queue, options, want string }{
		{"nobody''s", `{"archive": false}`, "unchanged map[archive:false mode:running]"},
		{"nobody''s", `{}`, "unchanged map[archive:false mode:running]"},
		{"q", `{"archive": true}`, "changed map[archive:false mode:running]"},
		{"q", `{"archive": true}`, "unchanged map[archive:true mode:running]"},
		{"q", `{"archive": null}`, "unchanged map[archive:true mode:running]"},
		{"q", `{}`, "unchanged map[archive:true mode:running]"},
		{"q", `{"archive": false}`, "changed map[archive:true mode:running]"},
		{strings.Repeat("q", 255), `{"archive": true}`, "changed map[archive:false mode:running]"},
		{"", `{"archive": true}`, "P4000"},
		{strings.Repeat("q", 256), `{"archive": true}`, "P4000"},
		{"q", `{"archive": "yes"}`, "P4004"},
		{"q", `{"archived": true}`, "P4004"},
		{"q", `[]`, "P4004"},
	} {
		b.is(fmt.Sprintf(set, c.queue, c.options), c.want)
	}
	b.is("select s.outcome from pawl_v1.queue_set('q', '{}', '', 'why') as s", "P4004")
	b.is("select s.outcome from pawl_v1.queue_set('q', '{}', 'ann', null) as s", "P4004")
	b.is("select a.verb, a.target, a.actor, a.reason, a.before ->> 'archive', a.after ->> 'archive' from pawl.audit as a order by a.id",
		"queue_set queue 1 ann why false true, queue_set queue 1 ann why true false, queue_set queue "+
			b.main.Do("select max(q.id) from pawl.queue as q")+" ann why false true")
	b.is("select q.name, q.archive from pawl_v1.queues as q where q.name in ('q', 'nobody''s')", "q false")
}

// A worker's role may do all of this, but neither set a queue nor empty another table.
func TestArchive_RoleOfAWorker(t *testing.T) {
	t.Parallel()
	b := setup(t, schema.Roles()+";"+eightHeld+";"+ringDay(3).rows(7))
	b.do("set role pawl_app")
	b.is("select f.outcome from pawl_v1.job_finish(1, 1) as f", "finished")
	b.is("select f.outcome from pawl_v1.job_finish_many('{2}', '{1}') as f", "finished")
	b.is(sweepRing, "swept 1 map[]")
	b.is(archived, "1, 2")
	b.is("delete from pawl.archive_0", "42501")
	b.is("update pawl.queue set archive = true", "42501")
	b.is(`select pawl_v1.queue_set('q', '{"archive": false}', 'a', 'r')`, "42501")
	b.do("set role pawl_operator")
	b.is(`select s.outcome from pawl_v1.queue_set('q', '{"archive": false}', 'a', 'r') as s`, "changed")
	b.do("set role pawl_reader")
	b.is(archived, "1, 2")
	b.is("select q.archive from pawl_v1.queues as q", "false")
}
