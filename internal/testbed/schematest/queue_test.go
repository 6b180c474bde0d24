package schematest_test

import (
	"fmt"
	"testing"
)

const (
	setMode   = `select s.outcome, s.detail ->> 'mode' from pawl_v1.queue_set('q', '{"mode": "%s"}', 'ann', 'why') as s`
	claimAll  = "select coalesce(string_agg(c.id::text, '+' order by c.id), '') from pawl_v1.job_claim('q', 1, 25) as c"
	claimThis = "select c.outcome from pawl_v1.job_claim_id(%d, 1) as c"
	// In someBegun job 1 was attempted before, 2 released its attempt, 3 has a crash, 4 is fresh,
	// and 5 was attempted and is not due. Job 6 is in another queue.
	someBegun = `select pawl_v1.worker_register('one'), pawl_v1.job_enqueue(q, 'k', '') from unnest('{q,q,q,q,q,other}'::text[]) as q;
update pawl.job set attempts = 1 where id in (1, 5); update pawl.job set crashes = 1, attempts = 1 where id = 3;
update pawl.job set available_at = now() + interval '1 hour' where id = 5;`
)

// A paused queue hands out no jobs. After it is resumed, all are claimable. In any mode held jobs
// can end and jobs can be enqueued.
func TestQueue_Paused(t *testing.T) {
	t.Parallel()
	b := setup(t, someBegun)
	b.is(fmt.Sprintf(claimThis, 2), "claimed")
	b.is(fmt.Sprintf(setMode, "paused"), "changed running")
	b.is(claimAll, "")
	for id := range 4 {
		b.is(fmt.Sprintf(claimThis, id+1), map[bool]string{true: "busy", false: "paused"}[id+1 == 2])
	}
	b.is(fmt.Sprintf(claimThis, 6), "claimed")
	b.is("select h.outcome from pawl_v1.job_hold(2, 1) as h", "held")
	b.is("select f.outcome from pawl_v1.job_finish(2, 1) as f", "finished")
	b.is("select e.outcome from pawl_v1.job_enqueue('q', 'k', '') as e", "enqueued")
	b.is(fmt.Sprintf(setMode, "running"), "changed paused")
	b.is(claimAll, "1") // up to the job with a crash, which runs alone
	b.is(claimAll, "3")
	b.is(claimAll, "4+7")
}

// A draining queue hands out only jobs that were attempted before, and jobs with a crash alone.
func TestQueue_Draining(t *testing.T) {
	t.Parallel()
	b := setup(t, someBegun)
	b.is(fmt.Sprintf(setMode, "draining"), "changed running")
	b.is("select q.mode, q.processing, q.begun from pawl_v1.queues as q", "draining 0 3")
	b.is(fmt.Sprintf(claimThis, 4), "paused")
	b.is(fmt.Sprintf(claimThis, 5), "not_due")
	b.is(claimAll, "1")
	b.is(claimAll, "3")
	b.is(claimAll, "")
	b.is("select q.mode, q.processing, q.begun from pawl_v1.queues as q", "draining 2 1")
	b.do("select pawl_v1.job_release(1, 1)")
	b.is("select j.attempts from pawl.job as j where j.id = 1", "1")
	b.do("update pawl.job set available_at = now() where id = 5")
	b.is("select coalesce(string_agg(c.id::text, '+' order by c.id), '') from pawl_v1.job_claim('q', 1, 25, '{\"kinds\": [\"x\"]}') as c", "")
	b.is("select coalesce(string_agg(c.id::text, '+' order by c.id), '') from pawl_v1.job_claim('q', 1, 1) as c", "1")
	b.is(claimAll, "5")
	b.is(fmt.Sprintf(setMode, "running"), "changed draining")
	b.is(claimAll, "2+4")
}

// A claim from a draining queue reads only begun jobs, not the thousands of others.
func TestQueue_DrainingHasAnIndex(t *testing.T) {
	t.Parallel()
	b := setup(t, someBegun+`insert into pawl.job (queue, kind, payload) select 'q', 'k', '' from generate_series(1, 20000); analyze pawl.job;`)
	b.do(fmt.Sprintf(setMode, "draining"))
	b.do("begin")
	b.do("select pawl_v1.job_claim('q', 1, 25)")
	b.is(`select pg_stat_get_xact_numscans('pawl.job_begun'::regclass), pg_stat_get_xact_numscans('pawl.job_claim'::regclass), pg_stat_get_xact_numscans('pawl.job'::regclass)`, "1 0 0")
}

// Both settings are in one row. Each change is audited, and an absent setting stays.
func TestQueue_ModeAndArchive(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	const set = "select s.outcome, s.detail::text from pawl_v1.queue_set('q', '%s', 'ann', 'why') as s"
	for _, step := range [][2]string{
		{`{"mode": "running"}`, `unchanged {"mode": "running", "archive": false}`},
		{`{"mode": "paused"}`, `changed {"mode": "running", "archive": false}`},
		{`{"archive": true}`, `changed {"mode": "paused", "archive": false}`},
		{`{"mode": "paused", "archive": true}`, `unchanged {"mode": "paused", "archive": true}`},
		{`{"mode": "draining", "archive": null}`, `changed {"mode": "paused", "archive": true}`},
		{`{"mode": "running", "archive": false}`, `changed {"mode": "draining", "archive": true}`},
		{`{"mode": "stopped"}`, "P4004"}, {`{"mode": 1}`, "P4004"},
	} {
		b.is(fmt.Sprintf(set, step[0]), step[1])
	}
	b.is("select a.before ->> 'mode', a.after ->> 'mode', a.after ->> 'archive' from pawl.audit as a order by a.id",
		"running paused false, paused paused true, paused draining true, draining running false")
}
