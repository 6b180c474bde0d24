package schematest_test

import (
	"fmt"
	"testing"
)

// With a limit, the oldest of each class are returned, so that ten thousand of one class do not
// hide the others. Without advice, all other columns are returned.
func TestStaleClassify_Options(t *testing.T) {
	t.Parallel()
	b := setup(t, `insert into pawl.job (queue, kind, payload, status, available_at)
select 'q', 'k', '', (array['dead_letter', 'dead_letter', 'unknown', 'cancelled', 'pending'])[1 + n % 5], clock_timestamp() from generate_series(1, 100) as n;
insert into pawl.job (queue, kind, payload, status, claimed_by, lease_expires_at) select 'q', 'k', '', 'processing', 0, clock_timestamp() - n * interval '1 second' from generate_series(1, 7) as n;
insert into pawl.command (scope, key, hash, status, updated_at, expires_at, lease_expires_at, claimed_by)
select 's', n::text, sha256(''), (array['unknown', 'processing'])[1 + n % 2], clock_timestamp() - n * interval '1 second', clock_timestamp() + interval '1 day', clock_timestamp() - interval '1 day', 'w' from generate_series(1, 20) as n`)
	counts := func(options string) string {
		return "select string_agg(format('%s %s %s', s.kind, s.class, s.n), ', ' order by s.kind, s.class) from (select s.kind, s.class, count(*) as n from pawl_v1.stale_classify(null, '" +
			options + "') as s group by 1, 2) as s"
	}
	b.is(counts("{}"), "command abandoned 10, command unknown 10, job abandoned 7, job dead_letter 40, job unknown 20")
	b.is(counts(`{"limit": 8}`), "command abandoned 8, command unknown 8, job abandoned 7, job dead_letter 8, job unknown 8")
	b.is(counts(`{"advice": false}`), "command abandoned 10, command unknown 10, job abandoned 7, job dead_letter 40, job unknown 20")
	b.is(`select string_agg(s.key, ' ' order by s.key::int) from pawl_v1.stale_classify('job', '{"limit": 3}') as s where s.class = 'dead_letter'`, "1 5 6")
	b.is(`select string_agg(s.key, ' ' order by s.key::int) from pawl_v1.stale_classify('command', '{"limit": 2}') as s where s.class = 'unknown'`, "18 20")
	b.is("select count(*) filter (where s.advice is null), count(*) from pawl_v1.stale_classify() as s", "0 87")
	b.is(`select count(s.advice), count(s.reason) from pawl_v1.stale_classify(null, '{"advice": false}') as s`, "0 87")
	for _, options := range []string{`{"limit": 0}`, `{"limit": -1}`, `{"limits": 3}`} {
		b.is("select pawl_v1.stale_classify(null, '"+options+"')", "P4004")
	}
}

// A call in doubt is orphaned if its job or command has ended. Pawl does not know whether the row
// of a guard, or a failed command, is tried again. Their steps are orphaned if no attempt has
// followed for 2 hours. A command that stands still is listed itself.
func TestStaleClassify_OrphanedSteps(t *testing.T) {
	t.Parallel()
	const claimed = "select pawl_v1.command_claim('s', 'k', sha256('p'))"
	for what, c := range map[string]struct {
		scope, job, given string
		now, later        string // the class just after the call, and when all is 121 minutes older
		reason            string
	}{
		"job pending":       {scope: "job/q", job: "1", given: "select pawl_v1.job_enqueue('q', 'k', '')", now: "<nil>", later: "<nil>"},
		"job dead":          {scope: "job/q", job: "1", given: "select pawl_v1.job_enqueue('q', 'k', ''); update pawl.job set status = 'dead_letter'", now: "orphaned", later: "orphaned", reason: "a call went unanswered, and its job is dead_letter"},
		"job gone":          {scope: "job/q", job: "1", now: "orphaned", later: "orphaned", reason: "a call went unanswered, and its job has ended"},
		"row of a guard":    {scope: "guard/public.orders", job: "null", now: "<nil>", later: "orphaned", reason: "a call went unanswered, and no attempt of its row has followed for 2 hours"},
		"holder of a user":  {scope: "mine", job: "null", now: "<nil>", later: "orphaned", reason: "a call went unanswered, and no attempt of its owner has followed for 2 hours"},
		"command runs":      {scope: "command/s", job: "null", given: claimed, now: "<nil>", later: "<nil>"},
		"command unknown":   {scope: "command/s", job: "null", given: claimed + "; update pawl.command set status = 'unknown'", now: "<nil>", later: "<nil>"},
		"command failed":    {scope: "command/s", job: "null", given: claimed + "; select pawl_v1.command_fail('s', 'k', c.fence, sha256('p'), '{}') from pawl.command as c", now: "<nil>", later: "orphaned", reason: "a call went unanswered, and no attempt of its owner has followed for 2 hours"},
		"command succeeded": {scope: "command/s", job: "null", given: claimed + "; select pawl_v1.command_succeed('s', 'k', c.fence) from pawl.command as c", now: "orphaned", later: "orphaned", reason: "a call went unanswered, and its command has ended"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t, c.given)
			b.do(fmt.Sprintf(`select pawl_v1.step_begin('%s', 'k', 'charge', sha256('p'), '{"recovery": "keyed", "provider_key": "key-1", "job_id": %s}')`, c.scope, c.job))
			stale := "select max(s.class) from pawl_v1.stale_classify('step') as s"
			b.is(stale, "<nil>")
			b.do("update pawl.step_call set not_after = started_at + interval '1 millisecond'")
			b.is(stale, c.now)
			// The later of the last change and the last call counts.
			b.do("update pawl.step set updated_at = updated_at - interval '121 minutes'")
			b.is(stale, c.now)
			b.do("update pawl.step_call set not_after = not_after - interval '121 minutes', started_at = started_at - interval '121 minutes'")
			b.is(stale, c.later)
			if c.later != "<nil>" {
				b.is("select s.scope, s.key, s.reason, s.advice ~ 'key-1|retry the job' from pawl_v1.stale_classify() as s where s.kind = 'step'", c.scope+" k "+c.reason+" true")
				b.do("update pawl.step set updated_at = clock_timestamp()") // an attempt
				b.is(stale, c.now)
			}
		})
	}
}
