package schematest_test

import (
	"fmt"
	"testing"
)

const (
	isolate = "select i.outcome from pawl_v1.worker_isolate(%d, %s) as i"
	dueNow  = "update pawl.job set available_at = clock_timestamp() where status = 'pending'"
	counted = "select j.status, j.crashes, j.crashes_alone from pawl.job as j"
)

// dies makes a new worker claim the job and die with it.
func (b *bed) dies(alone bool) {
	b.Helper()
	b.do(dueNow + "; insert into pawl.worker (name) values ('w')")
	b.do("select from pawl.worker as w, pawl_v1.job_claim('q', w.id) order by w.id desc limit 1")
	if alone {
		b.do("select pawl_v1.worker_isolate(j.claimed_by, j.id, j.fence) from pawl.job as j")
	}
	b.do(expireWorkers)
	b.do(sweepAll)
}

// Crashes alone and in total are counted separately. Four crashes alone end a job, or twelve in
// total. So an innocent job beside a poison job, or during external kills, survives, and a slow
// poison job ends eventually.
func TestSweep_CountsDeathsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', '', '{"max_attempts": 1000}')`)
	for n := 1; n <= 3; n++ {
		b.dies(true)
		b.is(counted, fmt.Sprintf("pending %d %d", n, n))
	}
	for n := 4; n <= 11; n++ {
		b.dies(false)
		b.is(counted, fmt.Sprintf("pending %d 3", n))
	}
	b.dies(false)
	b.is(counted, "dead_letter 12 3")
	b.do("select pawl_v1.job_retry(1, 'me', 'again')")
	b.is(counted, "pending 0 0")
	for range 4 {
		b.dies(true)
	}
	b.is(counted, "dead_letter 4 4")
}

// The mark belongs to one attempt. It does not apply to the next attempt or to another job, and
// only the attempt's holder can set it.
func TestIsolate_IsOfOneAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w'), pawl_v1.worker_register('v'); select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,a}');
select pawl_v1.job_claim('q', 1)`)
	for arguments, want := range map[string]string{"1, 1": "alone", "1, 2": "lost", "3, 1": "lost", "null, null": "lost", "1, 1, false": "company"} {
		b.is(fmt.Sprintf(isolate, 1, arguments), want)
	}
	b.is(fmt.Sprintf(isolate, 2, "1, 1"), "lost") // another worker's attempt
	b.is(fmt.Sprintf(isolate, 7, "1, 1"), "lost")
	b.is(fmt.Sprintf(isolate, 1, "1, 1"), "alone")
	b.do("select pawl_v1.job_release(1, 1); select pawl_v1.job_claim('q', 1)")
	b.do(expireWorkers)
	b.do(sweepAll)
	b.is("select j.id, j.crashes, j.crashes_alone from pawl.job as j order by j.id", "1 1 0, 2 1 0")
}

// A mark that is removed late does not remove the next suspect's mark, because each call names its
// attempt.
func TestIsolate_ALateEndLeavesTheNextMark(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w'); select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,a}'); select pawl_v1.job_claim('q', 1, 2)`)
	const marked = "select w.alone_job, w.alone_fence from pawl.worker as w"
	b.is(fmt.Sprintf(isolate, 1, "1, 1"), "alone")
	b.is(fmt.Sprintf(isolate, 1, "2, 1"), "alone")
	b.is(fmt.Sprintf(isolate, 1, "1, 1, false"), "company") // too late
	b.is(marked, "2 1")
	b.is(fmt.Sprintf(isolate, 1, "2, 7, false"), "company") // another attempt of the job
	b.is(marked, "2 1")
	b.is(fmt.Sprintf(isolate, 1, "2, 1, false"), "company")
	b.is(marked, "<nil> <nil>")
}

// A worker that leaves releases its jobs uncharged, except those that it abandons. The next sweep
// counts a crash of each, alone if it was marked, charges no attempt, and records a death.
func TestLeave_AbandonsJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w', '30 seconds', '{"queues": ["q"]}');
select pawl_v1.job_enqueue('q', 'k', '', '{"max_attempts": 1}') from generate_series(1, 3); select pawl_v1.job_claim('q', 1)`)
	const (
		leave = "select l.outcome, l.released from pawl_v1.worker_leave(1, '%s') as l"
		jobs  = "select j.id, j.status, j.attempts, j.crashes, j.crashes_alone from pawl.job as j order by j.id"
	)
	b.is(fmt.Sprintf(leave, `{"abandoned": 2}`), "P4004")
	b.is(fmt.Sprintf(leave, `{"forgotten": [2]}`), "P4004")
	b.is(fmt.Sprintf(isolate, 1, "3, 1"), "alone")
	b.is(fmt.Sprintf(leave, `{"abandoned": [2, 3, 99]}`), "busy 1")
	b.is(jobs, "1 pending 0 0 0, 2 processing 1 0 0, 3 processing 1 0 0")
	b.is("select pawl_v1.job_claim('q', 1)", "P4020")
	b.is(sweepAll, "2 0 1")
	b.is(jobs, "1 pending 0 0 0, 2 pending 0 1 0, 3 pending 0 1 1")
	b.is("select j.last_errors -> -1 ->> 'error', j.last_errors -> -1 ? 'lease_ended_at' from pawl.job as j where j.id = 2",
		"the worker stopped, and the handler had not returned false")
	b.is("select d.queue from pawl.death as d", "q")
	b.do("update pawl.job set crashes = 11 where id = 2; update pawl.job set crashes_alone = 3 where id = 3; " + dueNow)
	for id := 2; id <= 3; id++ {
		b.do("insert into pawl.worker (id, name) overriding system value values (100, 'v'); select pawl_v1.job_claim_id(" + fmt.Sprint(id) + ", 100)")
		b.do(fmt.Sprintf(isolate, 100, "3, 2"))
		b.do(fmt.Sprintf(`select pawl_v1.worker_leave(100, '{"abandoned": [%d]}')`, id))
		b.is(sweepAll, "0 1 1")
	}
	b.is(jobs, "1 pending 0 0 0, 2 dead_letter 0 12 0, 3 dead_letter 0 2 4")
}

// The death of a worker is recorded for each of its queues: as possible while it is silent, and
// finally once a sweep has judged. A worker that leaves has not died.
func TestQueueDeath(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	const died = "select d.outcome, round(extract(epoch from clock_timestamp() - d.died_at)) < 2 from pawl_v1.queue_death('q') as d"
	b.is(died, "none <nil>")
	b.do(`select pawl_v1.worker_register('w', '30 seconds', '{"queues": ["q", "r"]}'), pawl_v1.worker_register('elsewhere', '30 seconds', '{"queues": ["s"]}')`)
	b.is(died, "none <nil>")
	b.do("update pawl.worker set seen_at = clock_timestamp() - interval '2 seconds'")
	b.is(died, "none <nil>")
	b.do("update pawl.worker set seen_at = clock_timestamp() - interval '4 seconds' where id = 1")
	b.is(died, "silent true")
	b.do("select pawl_v1.worker_heartbeat(1)")
	b.is(died, "none <nil>")
	b.do("update pawl.worker set seen_at = now() - lease * 2 where id = 1")
	b.do(sweepAll)
	b.is(died, "died true")
	b.is("select string_agg(d.queue, ' ' order by d.queue) from pawl.death as d", "q r")
	b.do("update pawl.death set died_at = now() - interval '1 hour'")
	b.do(`select pawl_v1.worker_register('w', '30 seconds', '{"queues": ["q"]}')`)
	b.is(died, "died false")
	b.do("select pawl_v1.worker_leave(3)")
	b.do(sweepAll)
	b.is(died, "died false")
	b.do("insert into pawl.worker (name, queues, seen_at) values ('left, and its row had to stay', '[\"q\"]', '-infinity')")
	b.is(died, "died false")
	b.do(sweepAll)
	b.is(died, "died false")
	b.do("insert into pawl.worker (name, queues, seen_at) select 'dead with others', '[\"q\", \"r\", \"q\"]', now() - interval '1 hour' from generate_series(1, 3)")
	b.is(sweepAll, "0 0 3")
	b.is(died, "died true")
	b.is(`select pawl_v1.worker_register('w', '30 seconds', '{"queues": [""]}')`, "P4000")
	b.is(`select pawl_v1.worker_register('w', '30 seconds', '{"queues": "q"}')`, "P4004")
	b.is(`select pawl_v1.worker_register('w', '30 seconds', '{"queue": ["q"]}')`, "P4004")
}

// The record of a failed attempt contains its fence and its worker, and the end of its lease if
// that was the reason.
func TestErrors_NameTheAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w1'), pawl_v1.worker_register('w2');
select pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.job_enqueue('q', 'k', '')`)
	const last = `select j.id, j.last_errors -> -1 ->> 'code', j.last_errors -> -1 ->> 'fence', j.last_errors -> -1 ->> 'worker',
       (j.last_errors -> -1 ->> 'lease_ended_at')::timestamptz between clock_timestamp() - interval '50 seconds' and clock_timestamp()
  from pawl.job as j
 order by j.id`
	b.do("select c.id from pawl_v1.job_claim('q', 1, 1) as c")
	b.do("select c.id from pawl_v1.job_claim('q', 2, 1) as c")
	b.do("select c.id from pawl_v1.job_claim_id(3, null) as c")
	b.do(`select pawl_v1.job_fail(2, 1, '{"error": "e", "code": "22000"}')`)
	b.do("update pawl.worker set seen_at = clock_timestamp() - interval '40 seconds' where id = 1")
	b.do("update pawl.job set lease_expires_at = clock_timestamp() - interval '10 seconds' where id = 3")
	b.do(sweepAll)
	b.is(last, "1 crash 1 w1 true, 2 22000 1 w2 <nil>, 3 crash 1 <nil> true")
	b.is("select e.event, e.detail from pawl_v1.explain('1') as e where e.event in ('lease_ended', 'failed')",
		"lease_ended map[attempt:1 fence:1 worker:w1], failed map[attempt:1 code:crash error:the worker died or froze past its lease fence:1 worker:w1]")
}
