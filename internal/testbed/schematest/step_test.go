package schematest_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
)

func beginStep(policy, more string) string {
	return `select b.outcome from pawl_v1.step_begin('s', 'k', 'charge', sha256('p'), '{"recovery": "` + policy + `", "provider_key": "key"` + more + `}') as b`
}

func endStep(outcome, more string) string {
	return "select e.outcome, e.detail from pawl_v1.step_end('s', 'k', 'charge', (select max(c.fence) from pawl.step_call as c), '" + outcome + "'" + more + ") as e"
}

func settleStep(verdict, options string) string {
	return "select s.outcome, s.detail from pawl_v1.step_settle('s', 'k', 'charge', " + newestFence + ", '" + verdict + "', 'ann', 'asked them', '" + options + "') as s"
}

const (
	newestFence = "coalesce((select max(e.fence) from pawl.step as e), 0)"
	effectRow   = "select e.status, e.reference, convert_from(e.result, 'UTF8'), e.failure_code from pawl.step as e"
	callsOver   = "update pawl.step_call set not_after = now() - interval '1 minute'"
)

// The next action of each policy after a call with an unknown outcome.
func TestStep_Recoveries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ policy, more, given, want string }{
		{"keyed", "", "", "call"},
		{"keyed", "", "update pawl.step set memory_ends_at = now()", "unknown"},
		{"checked", "", "", "wait"},
		{"checked", "", callsOver, "probe"},
		{"checked", `, "settle_ms": 3600000`, callsOver, "wait"},
		{"at_most_once", "", callsOver, "unknown"},
		{"repeatable", "", "", "call"},
		{"accept_duplicates", "", "", "call"},
	} {
		b := setup(t, "")
		b.is(beginStep(c.policy, ""), "call")
		if c.given != "" {
			b.do(c.given)
		}
		b.is(beginStep(c.policy, c.more), c.want)
	}
}

// A call's end can be reported once, repeatedly and with another outcome.
func TestStep_Ends(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is(beginStep("at_most_once", ""), "call")
	b.is(endStep("not_sent", ""), "planned map[]")
	// A known outcome stays.
	b.is(endStep("executed", ""), "planned map[contradicts:true kept:true]")
	b.is(beginStep("at_most_once", ""), "call")
	b.is(endStep("ambiguous", `, null, '{"error": "cut", "exchange": {"status": 500}}'`), "unknown map[]")
	b.is("select c.detail ->> 'error', c.detail -> 'exchange' ->> 'status' from pawl.step_call as c order by c.fence desc limit 1", "cut 500")
	b.is(beginStep("keyed", ""), "unknown") // independent of the current policy
	b.is(endStep("executed", `, 'the result', '{"reference": "ch_1"}'`), "succeeded map[]")
	b.is(effectRow, "succeeded ch_1 the result <nil>")
	b.is(endStep("executed", `, 'another', '{"reference": "ch_2"}'`), "succeeded map[kept:true]")
	b.is(effectRow, "succeeded ch_1 the result <nil>")
	b.is("select b.outcome, convert_from(b.result, 'UTF8'), b.reference, b.calls from pawl_v1.step_begin('s', 'k', 'charge', sha256('p'), "+
		`'{"recovery": "checked", "provider_key": "another"}') as b`, "replay_success the result ch_1 2")
	b.is("select b.outcome from pawl_v1.step_begin('s', 'k', 'charge', sha256('other'), "+`'{"recovery": "keyed", "provider_key": "key"}') as b`, "P4002")
	b.is("select e.outcome from pawl_v1.step_end('s', 'k', 'charge', 999, 'executed') as e", "absent")
	b.is("select e.outcome from pawl_v1.step_end('s', 'k', 'refund', 1, 'executed') as e", "absent")
	b.is(endStep("cannot_tell", ""), "P4004")
	b.is(beginStep("sometimes", ""), "P4004")
	b.is(beginStep("keyed", `, "memory": 1`), "P4004")
}

// A refusal ends the step, unless another call may have been executed.
func TestStep_Refused(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{"keyed": "failed_final", "repeatable": "unknown", "accept_duplicates": "unknown"} {
		b := setup(t, "")
		b.do(beginStep(policy, ""))
		b.do(beginStep(policy, ""))
		b.is(endStep("refused", `, null, '{"error": "no money", "code": "declined"}'`), want+" map[]")
		if want == "failed_final" {
			b.is("select b.outcome, b.failure_code, b.failure_message from pawl_v1.step_begin('s', 'k', 'charge', sha256('p'), "+
				`'{"recovery": "keyed", "provider_key": "key"}') as b`, "final_failure declined no money")
		}
	}
}

// The provider's memory starts with the first call with the key, independent of its response. It
// restarts only after it has expired while no call is in doubt.
func TestStep_Memory(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	const memory = "select e.memory_ends_at = (select min(c.started_at) + interval '59 minutes' from pawl.step_call as c) from pawl.step as e"
	call := beginStep("keyed", `, "memory_ms": 3600000`)
	b.is(call, "call")
	b.is(memory, "true")
	b.is(endStep("not_sent", ""), "planned map[]") // too many requests
	b.is(call, "call")
	b.is(memory, "true")
	b.is(call, "call") // in doubt
	b.is(memory, "true")
	b.do("update pawl.step set memory_ends_at = now() - interval '1 minute'")
	b.is(call, "unknown")

	b = setup(t, "")
	b.is(call, "call")
	b.is(endStep("not_sent", ""), "planned map[]")
	b.do("update pawl.step set memory_ends_at = now() - interval '1 minute'")
	b.is(call, "call")
	b.is("select e.memory_ends_at > now() + interval '58 minutes' from pawl.step as e", "true")
}

// A second execution by the provider is reported if the policy forbids it and it is visible.
func TestStep_Twice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ policy, first, second, want string }{
		{"keyed", "ch_1", "ch_1", "map[kept:true late:true]"},
		// The provider forgot the key.
		{"keyed", "ch_1", "ch_2", "map[kept:true late:true twice:true]"},
		{"repeatable", "x", "x", "map[kept:true late:true]"},
		{"accept_duplicates", "x", "y", "map[kept:true late:true]"},
	} {
		b := setup(t, "")
		b.do(beginStep(c.policy, ""))
		b.do(beginStep(c.policy, ""))
		b.is(endStep("executed", fmt.Sprintf(`, null, '{"reference": "%s"}'`, c.second)), "succeeded map[]")
		b.is("select e.detail from pawl_v1.step_end('s', 'k', 'charge', (select min(c.fence) from pawl.step_call as c), 'executed', null, "+
			fmt.Sprintf(`'{"reference": "%s"}') as e`, c.first), c.want)
	}
}

// A verdict resolves the doubt and is audited. The verdict not_executed waits until no call can be
// sent any more.
func TestStep_Settle(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is(settleStep("executed", "{}"), "absent map[]")
	b.do(beginStep("at_most_once", ""))
	b.is(settleStep("executed", "{}"), "refused map[status:planned]")
	b.is(beginStep("at_most_once", ""), "unknown")
	b.is("select s.outcome, (s.detail ->> 'retry_after_ms')::int between 20000 and 30000 from pawl_v1.step_settle('s', 'k', 'charge', "+newestFence+", 'not_executed', 'ann', 'r') as s", "early true")
	b.is("select s.outcome from pawl_v1.step_settle('s', 'k', 'charge', "+newestFence+", 'refused', 'ann', 'r') as s", "early")
	b.is("select s.class, s.key, s.detail ->> 'step' from pawl_v1.stale_classify() as s", "unknown k charge")
	b.do(callsOver)
	b.is(settleStep("not_executed", "{}"), "settled map[status:planned]")
	b.is("select a.verb, a.target, a.reason, a.before ->> 'status', a.after ->> 'status', a.after ? 'result' from pawl.audit as a",
		"step_settle step s k charge asked them unknown planned false")
	b.is(beginStep("at_most_once", ""), "call")
	b.do(endStep("ambiguous", ""))
	b.is(settleStep("executed", `{"result": "{}", "reference": "ch_1"}`), "settled map[status:succeeded]")
	b.is(effectRow, "succeeded ch_1 {} <nil>")
	b.is(settleStep("sometimes", "{}"), "P4004")
	b.is("select pawl_v1.step_settle('s', 'k', 'charge', "+newestFence+", 'executed', '', 'r')", "P4004")
	b.is("select count(*) from pawl_v1.stale_classify()", "0")
	b.is("select pawl_v1.stale_classify('lane')", "P4004")

	b = setup(t, "")
	b.do(beginStep("at_most_once", ""))
	b.do(endStep("ambiguous", ""))
	b.is(settleStep("refused", `{"code": "declined"}`), "settled map[status:failed_final]")
	b.is(effectRow, "failed_final <nil> <nil> declined")
	// Although it was executed.
	b.is(endStep("executed", ""), "failed_final map[contradicts:true kept:true]")
}

// An end that was reported before a verdict may be reported again by a process that saw no
// response. The verdict stands.
func TestStep_ReportedAgainAfterAVerdict(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.do(beginStep("checked", ""))
	b.do(callsOver)
	b.is(beginStep("checked", `, "settle_ms": 0`), "probe")
	b.is(endStep("cannot_tell", ""), "unknown map[]")
	b.is(settleStep("not_executed", "{}"), "settled map[status:planned]")
	b.is(endStep("cannot_tell", ""), "planned map[]")
	b.is(beginStep("checked", ""), "call")
}

// A step outlives its delivery's job. If the delivery comes again after it was purged, the new job
// waits for the verdict.
func TestStep_AnotherJobWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.do(beginStep("at_most_once", `, "job_id": 1000`))
	b.is(beginStep("at_most_once", `, "job_id": 1000`), "unknown")
	b.do("select pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.job_claim('q', null)")
	b.is(beginStep("at_most_once", `, "job_id": 1`), "unknown")
	b.is(`select f.outcome from pawl_v1.job_fail(1, 1, '{}', '{"unknown": true}') as f`, "unknown")
	b.is(settleStep("executed", "{}"), "settled map[status:succeeded]")
	b.is("select j.status from pawl.job as j", "pending")
}

// After logical replication, a sequence that lags issues fences again. A verdict on an earlier call
// would then count for the next one, and an at-most-once call in doubt would be repeated. So
// step_begin refuses it.
func TestStep_SequenceBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ policy, end, after string }{
		"after a verdict":     {"at_most_once", "ambiguous", "unknown"},
		"after no call":       {"at_most_once", "not_sent", "unknown"},
		"after a call":        {"repeatable", "ambiguous", "planned"},
		"after an unread end": {"repeatable", "", "planned"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "select setval('pawl.fence_seq', 5000)")
			b.is(beginStep(c.policy, ""), "call")
			if c.end != "" {
				b.do(endStep(c.end, ""))
			}
			if name == "after a verdict" {
				b.is(settleStep("not_executed", "{}"), "settled map[status:planned]")
			}
			b.do("select setval('pawl.fence_seq', 1, false)")
			// A build without this check has issued another fence meanwhile.
			if name == "after a verdict" {
				b.do("update pawl.step set fence = 0")
			}
			refused := b.refusal(beginStep(c.policy, ""))
			b.same(refused.Code+" "+refused.Hint, "P4098 run pawl migrate up, which raises sequences that logical replication left behind")
			b.is("select count(*) from pawl.step_call", "1")
			b.do("select setval(s.sequence::regclass, s.held) from pawl_v1._sequences_behind(null) as s")
			b.is(beginStep(c.policy, ""), "call")
			b.is(endStep("ambiguous", ""), c.after+" map[]")
		})
	}
}

// A verdict with long names has an audit target that fits.
func TestStep_LongNames(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	long := "'" + strings.Repeat("x", 255) + "'"
	b.do("select pawl_v1.step_begin(" + long + "," + long + "," + long + `, sha256('p'), '{"recovery": "keyed", "provider_key": "key"}')`)
	b.do("update pawl.step set status = 'unknown'")
	b.is("select s.outcome from pawl_v1.step_settle("+long+","+long+","+long+", "+newestFence+", 'executed', 'ann', 'r') as s", "settled")
	b.is("select length(a.target), length(a.after ->> 'step') from pawl.audit as a", "69 255")
}

// A step is not purged, at any age, while it may be used again (trap T33).
func TestT33_PurgeKeepsWhatMayRunAgain(t *testing.T) {
	t.Parallel()
	const old = "update pawl.step set created_at = now() - interval '2 days', expires_at = now() - interval '1 day'"
	for what, c := range map[string]struct {
		scope, given string
		job          string // default 1
		end          string
		want         string
	}{
		"succeeded":             {end: "executed", want: "1"},
		"refused":               {end: "refused", want: "1"},
		"unknown":               {end: "ambiguous", want: "0"},
		"planned":               {end: "not_sent", given: "select pawl_v1.job_enqueue('q', 'k', '')", want: "0"},
		"never told":            {want: "0"},
		"planned, job is over":  {end: "not_sent", want: "1"},
		"planned, of a row":     {scope: "guard/public.orders", job: "null", end: "not_sent", want: "1"},
		"in doubt, of a row":    {scope: "guard/public.orders", job: "null", want: "0"},
		"in doubt, job over":    {want: "0"},
		"its job is pending":    {end: "executed", given: "select pawl_v1.job_enqueue('q', 'k', '')", want: "0"},
		"its job is dead":       {end: "executed", given: "select pawl_v1.job_enqueue('q', 'k', ''); update pawl.job set status = 'dead_letter'", want: "0"},
		"its command runs":      {scope: "command/s", end: "executed", given: "select pawl_v1.command_claim('s', 'k', sha256('p'))", want: "0"},
		"its command waits":     {scope: "command/s", end: "executed", given: "select pawl_v1.command_claim('s', 'k', sha256('p')); select pawl_v1.command_fail('s', 'k', c.fence, sha256('p'), '{}') from pawl.command as c", want: "0"},
		"planned, command runs": {scope: "command/s", job: "null", end: "not_sent", given: "select pawl_v1.command_claim('s', 'k', sha256('p'))", want: "0"},
		"planned, command over": {scope: "command/s", job: "null", end: "not_sent", given: "select pawl_v1.command_claim('s', 'k', sha256('p')); select pawl_v1.command_succeed('s', 'k', c.fence) from pawl.command as c", want: "1"},
		"its command is over":   {scope: "command/s", end: "executed", given: "select pawl_v1.command_claim('s', 'k', sha256('p')); select pawl_v1.command_succeed('s', 'k', c.fence) from pawl.command as c", want: "1"},
		"a command of another":  {scope: "command/t", end: "executed", given: "select pawl_v1.command_claim('s', 'k', sha256('p'))", want: "1"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t, c.given)
			if c.scope == "" {
				c.scope = "s"
			}
			b.do(fmt.Sprintf(`select pawl_v1.step_begin('%s', 'k', 'charge', sha256('p'), '{"recovery": "at_most_once", "provider_key": "key", "job_id": %s}')`, c.scope, cmp.Or(c.job, "1")))
			if c.end != "" {
				b.do(fmt.Sprintf("select pawl_v1.step_end('%s', 'k', 'charge', c.fence, '%s') from pawl.step_call as c", c.scope, c.end))
			}
			b.do(old)
			b.is(`select c.due from pawl_v1.purge_count('step', '{"older_than_ms": 0}') as c`, c.want)
			b.is(`select p.purged from pawl_v1.step_purge(10, '{"older_than_ms": 0}') as p`, c.want)
			b.is("select count(*) from pawl.step_call", map[string]string{"0": "1", "1": "0"}[c.want])
		})
	}
}

// No statement of a call scans more than its step, with statistics of empty and of full tables.
func TestStep_StatementsUseTheirIndex(t *testing.T) {
	t.Parallel()
	b := setup(t, `analyze pawl.step, pawl.step_call;
insert into pawl.step (scope, key, step, hash, recovery, provider_key, expires_at, status, job_id, fence)
select 's', n::text, 'charge', sha256('p'), 'keyed', 'key', now() + interval '1 day', case when n % 1000 = 0 then 'unknown' else 'succeeded' end, n, n from generate_series(1, 30000) as n;
insert into pawl.step_call (fence, scope, key, step, probe, not_after) select n, 's', n::text, 'charge', false, now() from generate_series(1, 30000) as n;
select setval('pawl.fence_seq', 40000);
select pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.job_claim('q', null)`)
	for _, given := range []string{"select 1", "analyze pawl.step, pawl.step_call"} {
		b.do(given)
		for _, call := range []string{
			`pawl_v1.step_begin('s', 'new', 'charge', sha256('p'), '{"recovery": "keyed", "provider_key": "key"}')`,
			`pawl_v1.step_begin('s', '7', 'charge', sha256('p'), '{"recovery": "keyed", "provider_key": "key"}')`,
			`pawl_v1.step_end('s', '7', 'charge', 7, 'executed')`,
			`pawl_v1.step_settle('s', '1000', 'charge', (select e.fence from pawl.step as e where e.scope = 's' and e.key = '1000' and e.step = 'charge'), 'executed', 'ann', 'r')`,
			`pawl_v1.job_fail(1, 1, '{}', '{"unknown": true}')`,
		} {
			s := b.open("fresh")
			s.Do("begin")
			before := s.Do(tableScans)
			s.Do("select " + call)
			if after := s.Do(tableScans); after != before {
				b.Errorf("%s, after %q: scans %s, then %s", call, given, before, after)
			}
			s.Do("rollback")
		}
		s := b.open("view")
		s.Do("begin")
		before := s.Do(tableScans)
		s.Do("select e.key, e.calls from pawl_v1.steps as e where e.status = 'unknown' order by e.updated_at limit 10")
		b.same(s.Do(tableScans), before)
		s.Do("rollback")
	}
}

const tableScans = "select pg_stat_get_xact_numscans('pawl.step'::regclass), pg_stat_get_xact_numscans('pawl.step_call'::regclass)"

// After a replay, the delivery of a step has another job. The step is kept while that job may run.
func TestStepPurge_FollowsTheOwner(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]bool{"the new job has begun": true, "the new job has not begun": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, `select pawl_v1.job_enqueue('inbox/hooks', 'delivery', 'x');
insert into pawl.inbox (consumer, key, hash, job_id) values ('hooks', 'evt_1', sha256('x'), 1)`)
			const begin = `select e.outcome from pawl_v1.step_begin('inbox/hooks', 'evt_1', 'charge', sha256('r'), '{"recovery": "keyed", "provider_key": "k", "job_id": %d}') as e`
			b.is(fmt.Sprintf(begin, 1), "call")
			b.is("select e.outcome from pawl.step as f, lateral pawl_v1.step_end(f.scope, f.key, f.step, f.fence, 'executed') as e", "succeeded")
			b.main.Do("delete from pawl.job")
			b.main.Do("select pawl_v1.job_enqueue('inbox/hooks', 'delivery', 'x')")
			b.main.Do("update pawl.inbox set job_id = 2")
			if begins {
				b.is(fmt.Sprintf(begin, 2), "replay_success")
				b.main.Do("delete from pawl.inbox")
			}
			b.main.Do("update pawl.job set status = 'dead_letter'")
			b.main.Do("update pawl.step set created_at = now() - interval '32 days', expires_at = now() - interval '1 day'")
			b.is("select c.due from pawl_v1.purge_count('step') as c", "0")
			b.is("select p.purged from pawl_v1.step_purge() as p", "0")
			b.main.Do("delete from pawl.job")
			b.is("select p.purged from pawl_v1.step_purge() as p", "1")
		})
	}
}
