package schematest_test

import (
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/stepper"
)

// A presence is one worker that holds one job, the session of its lock, and a session that sweeps.
type presence struct {
	*bed
	lock, sweeper *stepper.Session
}

const (
	beat   = `select h.outcome from pawl_v1.worker_heartbeat(1, '{"presence": true}') as h`
	attend = "select a.outcome from pawl_v1.worker_attend(1) as a"
	silent = "update pawl.worker set seen_at = clock_timestamp() - interval '2 seconds'"
	// For as long as the test takes.
	heard    = "update pawl.worker set seen_at = clock_timestamp() + interval '1 hour'"
	suspect  = "select w.suspected_at is not null from pawl.worker as w"
	longAgo  = "update pawl.worker set suspected_at = suspected_at - interval '300 milliseconds'"
	nobody   = "0 0 0"
	reclaims = "1 0 1"
	running  = "1 processing 1 1 1 0"
)

// What the sweep may conclude from a presence lock, and what not. Sweeping sessions must be 5 s
// old: all are opened first, so that the wait is one for all.
func TestPresence(t *testing.T) {
	t.Parallel()
	cases := map[string]func(p *presence){
		"lock held, silent":            heldAndSilent,
		"lock free, heartbeats":        freeAndHeard,
		"lock free, silent":            freeAndSilent,
		"heard between the looks":      heardBetween,
		"lock back between the looks":  backBetween,
		"no presence declared":         leaseOnly,
		"young session":                youngSession,
		"heartbeat in progress":        beatInProgress,
		"sweeping on its own session":  ownSession,
		"lock lost, heartbeats go on":  connectionLost,
		"spent attempts, one crash":    uncharged,
		"too many crashes":             tooManyCrashes,
		"more jobs than one call does": manyJobs,
	}
	all := map[string]*presence{}
	for name := range cases {
		b := setup(t, "select pawl_v1.worker_register('w'); select pawl_v1.job_enqueue('q', 'k', ''); select pawl_v1.job_claim('q', 1)")
		all[name] = &presence{b, b.open("lock"), b.open("sweeper")}
	}
	for name, play := range cases {
		p := all[name]
		p.until(p.sweeper, "select a.backend_start < clock_timestamp() - interval '5 seconds' from pg_stat_activity as a where a.pid = pg_backend_pid()", "true")
		t.Run(name, func(t *testing.T) {
			p.T = t
			play(p)
		})
	}
}

// sweep requires what one sweep takes back: jobs requeued, jobs dead-lettered, workers buried.
func (p *presence) sweep(want string) {
	p.Helper()
	p.same(p.sweeper.Do(sweepAll), want)
}

func (p *presence) suspected(want string) {
	p.Helper()
	p.is(suspect, want)
}

// present takes the lock and says so.
func (p *presence) present() {
	p.Helper()
	p.same(p.lock.Do(attend), "present")
	p.is(beat, "alive")
}

func heldAndSilent(p *presence) {
	p.present()
	p.do(silent)
	for range 5 {
		p.sweep(nobody)
		p.suspected("false")
	}
	p.is(jobs, running)
	p.do(expireWorkers)
	p.sweep(reclaims)
	p.is(jobs, "1 pending <nil> 1 1 1") // the lease alone decided: the attempt is charged
}

func freeAndHeard(p *presence) {
	p.is(beat, "alive") // it believes that it holds its lock
	p.do(heard)
	for range 5 {
		p.sweep(nobody)
		p.suspected("false")
	}
}

func freeAndSilent(p *presence) {
	p.is(beat, "alive")
	p.do(silent)
	p.sweep(nobody)
	p.suspected("true")
	// A look of less than 300 ms ago.
	p.do("update pawl.worker set suspected_at = clock_timestamp() + interval '1 hour'")
	p.sweep(nobody)
	p.do("update pawl.worker set suspected_at = clock_timestamp() - interval '300 milliseconds'")
	p.sweep(reclaims)
	p.is(jobs, "1 pending <nil> 1 0 1")
	p.is(beat, "lost")
	p.is("select pawl_v1.job_finish(1, 1)", "P4020")
}

func heardBetween(p *presence) {
	p.is(beat, "alive")
	p.do(silent)
	p.sweep(nobody)
	p.is(beat, "alive")
	p.suspected("false")
	p.do(heard)
	p.sweep(nobody)
	p.suspected("false")
	p.do(silent)
	p.sweep(nobody) // the first look again
	p.is(jobs, running)
}

func backBetween(p *presence) {
	p.is(beat, "alive")
	p.do(silent)
	p.sweep(nobody)
	p.same(p.lock.Do(attend), "present")
	p.do(longAgo)
	p.sweep(nobody)
	p.suspected("false")
	p.is(jobs, running)
}

func leaseOnly(p *presence) {
	p.is(`select h.outcome from pawl_v1.worker_heartbeat(1) as h`, "alive")
	p.do(silent)
	for range 3 {
		p.sweep(nobody)
		p.suspected("false")
	}
	p.is(beat, "alive")
	// Absent means as it was.
	p.is(`select h.outcome from pawl_v1.worker_heartbeat(1) as h`, "alive")
	p.is("select w.presence from pawl.worker as w", "true")
	p.is(`select h.outcome from pawl_v1.worker_heartbeat(1, '{"presence": false}') as h`, "alive")
	p.do(silent)
	p.sweep(nobody)
	p.suspected("false")
}

// After a restart of the server every lock is free and everybody was silent: whoever sweeps then is
// young.
func youngSession(p *presence) {
	p.is(beat, "alive")
	p.do(silent)
	p.do("update pawl.worker set suspected_at = clock_timestamp() - interval '1 minute'")
	p.same(p.open("young").Do(sweepAll), nobody)
	p.is(jobs, running)
	p.sweep(reclaims)
	p.do("insert into pawl.worker (name, seen_at) values ('gone', now() - interval '1 hour')")
	p.same(p.open("young").Do(sweepAll), "0 0 1") // a lease that is over needs no evidence
}

func beatInProgress(p *presence) {
	p.is(beat, "alive")
	p.do(silent)
	p.do("update pawl.worker set suspected_at = clock_timestamp() - interval '1 minute'")
	p.do("begin")
	p.is(beat, "alive")
	p.sweep(nobody)
	p.do("commit")
	p.sweep(nobody)
	p.is(jobs, running)
}

// A session gets its own lock a second time. That is no evidence.
func ownSession(p *presence) {
	p.same(p.sweeper.Do(attend), "present")
	p.is(beat, "alive")
	p.do(silent)
	p.do("update pawl.worker set suspected_at = clock_timestamp() - interval '1 minute'")
	p.sweep(nobody)
	p.is(jobs, running)
}

func connectionLost(p *presence) {
	for range 10 {
		lock := p.open("lock")
		p.same(lock.Do(attend), "present")
		p.is(beat, "alive")
		p.is("select bool_and(pg_terminate_backend(l.pid)) from pg_locks as l where l.locktype = 'advisory' and l.classid = 1885435757 "+
			"and l.database = (select d.oid from pg_database as d where d.datname = current_database())", "true")
		p.until(p.main, "select count(*) from pg_locks as l where l.locktype = 'advisory' and l.classid = 1885435757 "+
			"and l.database = (select d.oid from pg_database as d where d.datname = current_database())", "0")
		for range 20 {
			p.is(beat, "alive")
			p.sweep(nobody)
		}
	}
	p.is(jobs, running)
}

// A killed process spends no attempt: its last one is not its job's last.
func uncharged(p *presence) {
	p.do("update pawl.job set max_attempts = 1")
	p.is(beat, "alive")
	p.do(silent)
	p.sweep(nobody)
	p.do(longAgo)
	p.sweep(reclaims)
	p.is(jobs, "1 pending <nil> 1 0 1")
}

// The fourth death alone ends a job; so does the twelfth in company, and no other.
func tooManyCrashes(p *presence) {
	p.do("update pawl.job set crashes = 10, crashes_alone = 3")
	p.is("select i.outcome from pawl_v1.worker_isolate(1, 1, 1) as i", "alone")
	p.is(beat, "alive")
	p.do(silent)
	p.sweep(nobody)
	p.do(longAgo)
	p.sweep("0 1 1")
	p.is(jobs, "1 dead_letter <nil> 1 0 11")
	p.is("select j.crashes_alone from pawl.job as j", "4")
}

// The limit bounds one call (trap T24); the worker stays until its last job is back.
func manyJobs(p *presence) {
	p.do("select pawl_v1.job_enqueue_many(array_fill('q'::text, '{9}'), array_fill('k'::text, '{9}'), array_fill(''::bytea, '{9}'))")
	p.do("select pawl_v1.job_claim('q', 1)")
	p.is(beat, "alive")
	p.do(silent)
	p.sweep(nobody)
	p.do(longAgo)
	for _, want := range []string{"4 0 0", "4 0 0", "2 0 1"} {
		p.same(p.sweeper.Do("select s.requeued, s.dead_lettered, s.workers from pawl_v1.job_sweep('{k}', '{\"limit\": 4}') as s"), want)
	}
	p.is("select count(*), sum(j.crashes)::int from pawl.job as j", "10 10")
}

// One session at a time is present for a worker; its end frees the place.
func TestAttend_OneSession(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.worker_register('w'), pawl_v1.worker_register('v')")
	first, second := b.open("first"), b.open("second")
	b.same(first.Do(attend), "present")
	b.same(first.Do(attend), "present")
	b.same(second.Do(attend), "taken")
	b.same(second.Do("select a.outcome from pawl_v1.worker_attend(2) as a"), "present")
	b.is("select bool_and(pg_terminate_backend(l.pid)) from pg_locks as l where l.locktype = 'advisory' and l.classid = 1885435757 and l.objid = 1 "+
		"and l.database = (select d.oid from pg_database as d where d.datname = current_database())", "true")
	b.until(second, attend, "present")
}

// Jobs cancelled under a worker are told once.
func TestHeartbeat_Recalled(t *testing.T) {
	t.Parallel()
	b := setup(t, `insert into pawl.worker (name) values ('w');
		insert into pawl.recall (worker_id, job_id, fence) values (1, 9, 1), (1, 7, 1), (2, 8, 1), (1, 9, 2)`)
	b.is("select h.outcome, array_to_string(h.recalled, '+') from pawl_v1.worker_heartbeat(1) as h", "alive 7+9")
	b.is("select h.outcome, array_to_string(h.recalled, '+') from pawl_v1.worker_heartbeat(1) as h", "alive ")
	b.is("select h.outcome, array_to_string(h.recalled, '+') from pawl_v1.worker_heartbeat(2) as h", "lost ")
	b.is("select array_agg(r.job_id) from pawl.recall as r", "[8]")
	b.is(`select pawl_v1.worker_heartbeat(1, '{"here": true}')`, "P4004")
}

// An answer may be lost. What it named is named again until the worker says that it has arrived;
// what is recalled meanwhile, also by a transaction that began before, is not forgotten with it.
func TestHeartbeat_NamesUntilItArrived(t *testing.T) {
	t.Parallel()
	b := setup(t, `insert into pawl.worker (name) values ('w'), ('v');
		insert into pawl.recall (worker_id, job_id, fence) values (1, 7, 1), (2, 8, 1)`)
	told := func(options, want string) {
		t.Helper()
		b.is("select array_to_string(h.recalled, '+'), h.detail::text from pawl_v1.worker_heartbeat(1, '"+options+"') as h", want)
	}
	slow := b.open("slow")
	slow.Do("begin")
	// Id 3, behind which id 4 is seen first.
	slow.Do("insert into pawl.recall (worker_id, job_id, fence) values (1, 6, 1)")
	b.do("insert into pawl.recall (worker_id, job_id, fence) values (1, 9, 1)")
	told(`{"told": []}`, `7+9 {"recalls": [1, 4]}`)
	told(`{"told": []}`, `7+9 {"recalls": [1, 4]}`)
	slow.Do("commit")
	told(`{"told": [1, 4, 2]}`, `6 {"recalls": [3]}`) // 2 is another worker's
	told(`{"told": [3]}`, ` {}`)
	b.is("select array_agg(r.job_id) from pawl.recall as r", "[8]")
	b.is(`select pawl_v1.worker_heartbeat(1, '{"told": 7}')`, "P4004")
	b.is(`select pawl_v1.worker_heartbeat(1, '{"told": null}')`, "P4004")
}

// A transaction that cancels or recalls a running job, and stays open, costs its worker no
// heartbeat; the worker is told after the commit.
func TestHeartbeat_WaitsForNoOpenCancel(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"job_cancel(1, 'ann', 'it hangs')", "job_cancel_own(1)", "job_recall(1)"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			b := setup(t, `select pawl_v1.worker_register('w');
				select pawl_v1.job_enqueue('q', 'k', '{}');
				select pawl_v1.job_claim('q', 1)`)
			caller := b.open("caller")
			caller.Do("begin")
			b.same(caller.Do("select c.outcome in ('cancelled', 'recalled') from pawl_v1."+verb+" as c"), "true")
			b.is("select h.outcome, h.recalled from pawl_v1.worker_heartbeat(1) as h", "alive []")
			caller.Do("commit")
			b.is("select h.outcome, h.recalled from pawl_v1.worker_heartbeat(1) as h", "alive [1]")
			b.is("select h.outcome, h.recalled from pawl_v1.worker_heartbeat(1) as h", "alive []")
		})
	}
}

// A recall ends the attempt that it was meant for: if the worker has the job again under a later
// fence, it is not told.
func TestHeartbeat_NamesNoLaterAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w');
		select pawl_v1.worker_register('v');
		select pawl_v1.job_enqueue('q', 'k', '{}');
		select pawl_v1.job_claim('q', 1);
		select pawl_v1.job_cancel(1, 'ann', 'it hangs');
		select pawl_v1.job_retry(1, 'ann', 'again')`)
	b.do("select pawl_v1.job_claim('q', 1)")
	b.is("select h.outcome, h.recalled from pawl_v1.worker_heartbeat(1) as h", "alive []")
	b.do("select pawl_v1.job_cancel(1, 'ann', 'it hangs'), pawl_v1.job_retry(1, 'ann', 'again')")
	b.do("select pawl_v1.job_claim('q', 2)")
	b.is("select h.outcome, h.recalled from pawl_v1.worker_heartbeat(1) as h", "alive [1]")
	b.is("select h.outcome, h.recalled from pawl_v1.worker_heartbeat(2) as h", "alive []")
}

// What a worker that is gone was to be told goes with the next sweep.
func TestSweep_ForgetsTheRecallsOfTheDead(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w'), pawl_v1.worker_register('v');
		insert into pawl.recall (worker_id, job_id, fence) values (1, 7, 1), (2, 8, 1);
		update pawl.worker set seen_at = '-infinity' where id = 1`)
	b.is("select s.outcome, s.workers from pawl_v1.job_sweep('{k}') as s", "swept 1")
	b.is("select array_agg(r.worker_id) from pawl.recall as r", "[2]")
}

// The longest silence between two heartbeats is known for an hour; a report stays until the next
// one.
func TestHeartbeat_SilenceAndReport(t *testing.T) {
	t.Parallel()
	b := setup(t, "insert into pawl.worker (name) values ('w')")
	beat := func(options string) { b.do("select pawl_v1.worker_heartbeat(1, '" + options + "')") }
	silence := func(want string) {
		t.Helper()
		b.is("select date_trunc('minute', w.silence)::text from pawl.worker as w", want)
	}
	silent := func(span string) {
		b.do("update pawl.worker set seen_at = seen_at - interval '" + span + "'")
		beat("{}")
	}
	beat(`{"report": {"drain_ms": 1}}`)
	silence("00:00:00")
	silent("20 min")
	silence("00:20:00")
	silent("10 min")
	silence("00:20:00")
	silent("30 min")
	silence("00:30:00")
	b.do("update pawl.worker set silence_at = silence_at - interval '61 min'")
	silent("2 min")
	silence("00:02:00")
	// It has left, in a transaction that could not see all of its jobs.
	b.do("update pawl.worker set seen_at = '-infinity'")
	beat("{}")
	silence("00:02:00")
	b.is("select w.report from pawl.worker as w", "map[drain_ms:1]")
}
