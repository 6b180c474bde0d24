package schematest_test

import "testing"

// An exchange finishes held jobs, returns the others, and claims new jobs for the free slots.
func TestExchange_EndsAndClaims(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	b.do("delete from pawl.job where id > 4")
	b.do("select pawl_v1.job_enqueue('q', 'a', ''), pawl_v1.job_enqueue('q', 'b', ''), pawl_v1.job_enqueue('q', 'c', ''), pawl_v1.job_enqueue('q', 'd', '')")
	b.is("select t.outcome, t.kind from pawl_v1.job_exchange('{4,3,99,1}', '{1,1,1,1}', 'q', 1, 1) as t",
		// One free slot, and those of jobs 1 and 3.
		"ended <nil>, stale <nil>, stale <nil>, claimed a, claimed b, claimed c")
	b.is("select j.id from pawl.job as j where j.id <= 4 order by j.id", "2, 4")
	b.is("select t.outcome, t.detail ->> 'finished' from pawl_v1.job_exchange('{2}', '{1}', 'q', 1, 0) as t", "ended 1, claimed <nil>")
	b.is("select t.outcome, t.detail ->> 'finished' from pawl_v1.job_exchange('{}', '{}', 'q', 1, 0) as t", "ended 0")
}

// If the worker's lease is lost, the finishes stay, nothing is claimed, and a row reports it.
func TestExchange_EndsWithoutALease(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"late":      "update pawl.worker set seen_at = now() - interval '1 hour'",
		"soon late": "update pawl.worker set seen_at = clock_timestamp() - lease + interval '50 milliseconds'",
		"gone":      "delete from pawl.worker",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, fourHeld)
			b.do("select pawl_v1.job_enqueue('q', 'a', '')")
			b.do(lose)
			b.is("select t.outcome, t.detail ->> 'finished' from pawl_v1.job_exchange('{1,3}', '{1,1}', 'q', 1, 5) as t", "ended 2, lease_lost <nil>")
			b.is("select count(*) from pawl.job as j where j.id in (1, 3) or j.status = 'processing' and j.kind = 'a'", "0")
		})
	}
}

// job_exchange refuses invalid arguments.
func TestExchange_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t, fourHeld)
	for _, args := range []string{"'{1}', '{1}', 'q', 1, 501", "'{1}', '{1}', 'q', 1, -1", "'{1}', '{1}', 'q', 1, null", "'{1}', '{1,1}', 'q', 1, 1",
		"'{1}', '{1}', 'q', 1, 1, '{\"lease_ms\": 5000}'", "array_fill(1::bigint, '{501}'), array_fill(1::bigint, '{501}'), 'q', 1, 1"} {
		b.is("select pawl_v1.job_exchange("+args+")", "P4004")
	}
	b.is("select count(*) from pawl.job as j where j.id = 1", "1")
}

// The next job of a lane is claimed in the exchange that finishes the previous one.
func TestExchange_ClaimsTheSuccessorInALane(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.worker_register('one')")
	for range 2 {
		b.do("select pawl_v1.job_enqueue('q', 'k', '', '{\"lane\": \"l\"}')")
	}
	b.is("select c.id from pawl_v1.job_claim('q', 1, 10) as c", "1")
	b.is("select t.outcome, t.id, t.detail ->> 'promoted', t.detail ->> 'lane' from pawl_v1.job_exchange('{1}', '{1}', 'q', 1, 0) as t",
		"ended <nil> 1 <nil>, claimed 2 <nil> l")
}
