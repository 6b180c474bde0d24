package schematest_test

import (
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// A presence is a worker that holds one job, the session of its lock, and a session that sweeps.
type presence struct {
	*bed
	lock, sweeper *session
}

const (
	beat   = `select h.outcome from pawl_v1.worker_heartbeat(1, '{"presence": true}') as h`
	attend = "select a.outcome from pawl_v1.worker_attend(1) as a"
	silent = "update pawl.worker set seen_at = clock_timestamp() - interval '2 seconds'"
	// heard stays true for as long as the test takes.
	heard    = "update pawl.worker set seen_at = clock_timestamp() + interval '1 hour'"
	suspect  = "select w.suspected_at is not null from pawl.worker as w"
	longAgo  = "update pawl.worker set suspected_at = suspected_at - interval '300 milliseconds'"
	nobody   = "0 0 0"
	reclaims = "1 0 1"
	running  = "1 processing 1 1 1 0"
)

// The conclusions that the sweep may draw from a presence lock. Sweeping sessions must be 5 s old,
// so all are opened first and the test waits once. The lease is longer than that may take.
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
		b := setup(t, "select pawl_v1.worker_register('w', '1 hour'); select pawl_v1.job_enqueue('q', 'k', ''); select pawl_v1.job_claim('q', 1)")
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

// sweep requires the result of one sweep: requeued jobs, dead-lettered jobs and removed workers.
func (p *presence) sweep(want string) {
	p.Helper()
	p.same(p.sweeper.Do(sweepAll), want)
}

func (p *presence) suspected(want string) {
	p.Helper()
	p.is(suspect, want)
}

// present takes the lock and reports it.
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
	p.is(jobs, "1 pending <nil> 1 1 1") // only the lease decided, so the attempt is charged
}

func freeAndHeard(p *presence) {
	p.is(beat, "alive") // the worker believes that it holds its lock
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
	// The first check is less than 300 ms old.
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
	p.sweep(nobody) // a first check again
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
	// An absent option changes nothing.
	p.is(`select h.outcome from pawl_v1.worker_heartbeat(1) as h`, "alive")
	p.is("select w.presence from pawl.worker as w", "true")
	p.is(`select h.outcome from pawl_v1.worker_heartbeat(1, '{"presence": false}') as h`, "alive")
	p.do(silent)
	p.sweep(nobody)
	p.suspected("false")
}

// After a restart of the server, every lock is free and every worker was silent. A session that
// sweeps then is too young to judge.
func youngSession(p *presence) {
	p.is(beat, "alive")
	p.do(silent)
	p.do("update pawl.worker set suspected_at = clock_timestamp() - interval '1 minute'")
	p.same(p.youngSweep(), nobody)
	p.is(jobs, running)
	p.sweep(reclaims)
	p.do("insert into pawl.worker (name, seen_at) values ('gone', now() - interval '1 hour')")
	p.same(p.youngSweep(), "0 0 1") // an expired lease needs no evidence
}

// youngSweep sweeps in a new session. If the machine paused after it was opened, it is no longer
// young, and does not sweep.
func (p *presence) youngSweep() (swept string) {
	p.Helper()
	patience.Until(p, "a young session sweeps", func() bool {
		swept = p.open("young").Do(`select case
         when clock_timestamp() - a.backend_start < interval '4 seconds'
         then (select s.requeued || ' ' || s.dead_lettered || ' ' || s.workers from pawl_v1.job_sweep('{k,l}') as s)
         else 'old' end
  from pg_stat_activity as a
 where a.pid = pg_backend_pid()`)
		return swept != "old"
	})
	return swept
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

// A session can take its own lock a second time, which proves nothing.
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

// A killed process does not charge an attempt, so its last attempt is not its job's last.
func uncharged(p *presence) {
	p.do("update pawl.job set max_attempts = 1")
	p.is(beat, "alive")
	p.do(silent)
	p.sweep(nobody)
	p.do(longAgo)
	p.sweep(reclaims)
	p.is(jobs, "1 pending <nil> 1 0 1")
}

// A job ends at its fourth crash alone, or at its twelfth crash in total.
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

// The limit bounds one call (trap T24). The worker's row stays until its last job is requeued.
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

// One session at a time is present for a worker. When the session ends, another can take its place.
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

// The heartbeat reports jobs that were cancelled under a worker once.
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

// A response may be lost. Its recalls are reported again until the worker confirms them. A
// confirmation does not drop recalls that were added meanwhile, also not by a transaction that
// began earlier.
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
	// Its id is 3, and id 4 is seen before it.
	slow.Do("insert into pawl.recall (worker_id, job_id, fence) values (1, 6, 1)")
	b.do("insert into pawl.recall (worker_id, job_id, fence) values (1, 9, 1)")
	told(`{"told": []}`, `7+9 {"recalls": [1, 4]}`)
	told(`{"told": []}`, `7+9 {"recalls": [1, 4]}`)
	slow.Do("commit")
	told(`{"told": [1, 4, 2]}`, `6 {"recalls": [3]}`) // recall 2 is another worker's
	told(`{"told": [3]}`, ` {}`)
	b.is("select array_agg(r.job_id) from pawl.recall as r", "[8]")
	b.is(`select pawl_v1.worker_heartbeat(1, '{"told": 7}')`, "P4004")
	b.is(`select pawl_v1.worker_heartbeat(1, '{"told": null}')`, "P4004")
}

// A transaction that cancels or recalls a running job and stays open does not delay the worker's
// heartbeat. The worker learns of it after the commit.
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

// A recall ends only the attempt that it was meant for. If the worker has the job again under a
// later fence, the recall is not reported.
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

// The next sweep deletes the recalls of a dead worker.
func TestSweep_ForgetsTheRecallsOfTheDead(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w'), pawl_v1.worker_register('v');
		insert into pawl.recall (worker_id, job_id, fence) values (1, 7, 1), (2, 8, 1);
		update pawl.worker set seen_at = '-infinity' where id = 1`)
	b.is("select s.outcome, s.workers from pawl_v1.job_sweep('{k}') as s", "swept 1")
	b.is("select array_agg(r.worker_id) from pawl.recall as r", "[2]")
}

// The longest silence between two heartbeats is kept for an hour. A report is kept until the next
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
