//go:build proof

package schematest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// stepPlay contains the verbs of steps, as play contains those of jobs. All verbs use one step,
// charge of (s, k), and job 1, which waits for its verdict. Calls have names, because their fences
// are unpredictable.
const stepPlay = `
create table play.called (name text primary key, fence bigint not null);
create table play.step_told (n bigint generated always as identity primary key, fence bigint not null, verb text not null);

create function play.tell_step(p_fence bigint, p_verb text) returns void language sql as $$
  insert into play.step_told (fence, verb) values (p_fence, p_verb) $$;

create function play.plan(p_name text, p_policy text, p_options jsonb default '{}') returns text language plpgsql as $$
declare
  v_said record;
begin
  select b.outcome, b.fence into v_said
    from pawl_v1.step_begin('s', 'k', 'charge', sha256('one'),
                              '{"job_id": 1}' || p_options || jsonb_build_object('recovery', p_policy, 'provider_key', 'key')) as b;
  if v_said.outcome in ('call', 'probe') then
    perform play.tell_step(v_said.fence, p_policy || ' ' || v_said.outcome);
    insert into play.called (name, fence) values (p_name, v_said.fence);
  elsif v_said.outcome = 'unknown' then
    perform play.tell_step(0, 'unknown');
  elsif v_said.outcome = 'replay_success' and p_options ? 'job_id' then
    perform play.tell_step(0, 'inherited');
  end if;
  return v_said.outcome;
end $$;

create function play.once(p_name text) returns text language sql as $$ select play.plan(p_name, 'at_most_once') $$;
create function play.keyed(p_name text) returns text language sql as $$ select play.plan(p_name, 'keyed') $$;
create function play.checked(p_name text) returns text language sql as $$ select play.plan(p_name, 'checked', '{"settle_ms": 0}') $$;

-- A provider's action is recorded for any result of the function, because it happened.
create function play.ends(p_name text, p_outcome text) returns text language plpgsql as $$
declare
  v_fence bigint := (select c.fence from play.called as c where c.name = p_name);
  v_said  text;
begin
  if v_fence is null then
    return 'nothing';
  end if;
  select e.outcome into v_said from pawl_v1.step_end('s', 'k', 'charge', v_fence, p_outcome) as e;
  perform play.tell_step(v_fence, p_outcome);
  return v_said;
end $$;

-- An operator's verdict on the calls up to p_name, or up to the newest one when the verdict began.
create function play.verdict(p_verdict text, p_name text default null) returns text language plpgsql as $$
declare
  v_open  boolean := exists (select from pawl.step_call as c where c.step = 'charge' and c.outcome is null and c.not_after > clock_timestamp());
  v_fence bigint := case when p_name is null then (select e.fence from pawl.step as e where e.step = 'charge')
                         else (select c.fence from play.called as c where c.name = p_name) end;
  v_said  text;
begin
  select s.outcome into v_said from pawl_v1.step_settle('s', 'k', 'charge', coalesce(v_fence, 0), p_verdict, 'ann', 'a reason') as s;
  if v_said = 'settled' then
    perform play.tell_step(v_fence, case when v_open then 'early ' else 'settled ' end || p_verdict);
  end if;
  return v_said;
end $$;

-- An operator has a refused call repeated under a new key.
create function play.again(p_name text) returns text language plpgsql as $$
declare
  v_fence bigint := (select c.fence from play.called as c where c.name = p_name);
  v_said  text;
begin
  select a.outcome into v_said from pawl_v1.step_again('s', 'k', 'charge', v_fence, 'ann', 'a reason') as a;
  if v_said = 'renewed' then
    perform play.tell_step(v_fence, 'renewed');
  end if;
  return v_said;
end $$;

create function play.wait_for_verdict() returns text language sql as $$
  select f.outcome from pawl_v1.job_fail(1, 1, '{}', '{"unknown": true, "retry_in_ms": 0}') as f $$;

-- Another step of the job, which is not in the ledger.
create function play.refund_is_unknown() returns void language plpgsql as $$
begin
  for v_n in 1..2 loop
    perform pawl_v1.step_begin('s', 'k', 'refund', sha256('two'), '{"recovery": "at_most_once", "provider_key": "key", "job_id": 1}');
  end loop;
end $$;
create function play.refund_executed() returns text language sql as $$
  select s.outcome from pawl_v1.step_settle('s', 'k', 'refund', (select e.fence from pawl.step as e where e.step = 'refund'), 'executed', 'ann', 'a reason') as s $$;

create function play.purge_steps() returns text language plpgsql as $$
declare
  v_purged int;
begin
  select p.purged into v_purged from pawl_v1.step_purge(10, '{"older_than_ms": 0}') as p;
  if v_purged > 0 then
    perform play.tell_step(0, 'purged');
  end if;
  return v_purged;
end $$;

-- No call can be sent any more; the provider has forgotten the key; the step's retention has ended.
create function play.too_late() returns void language sql as $$
  update pawl.step_call set not_after = now() - interval '1 minute' $$;
create function play.provider_forgets() returns void language sql as $$
  update pawl.step set memory_ends_at = now() - interval '1 minute';
  select play.tell_step(0, 'forgotten') $$;
create function play.age_steps() returns void language sql as $$
  update pawl.step set created_at = now() - interval '2 days', expires_at = now() - interval '1 day' $$;

create function play.reset_effects() returns void language sql as $$
  delete from play.step_told; delete from play.called; delete from pawl.step; delete from pawl.step_call $$;
`

const (
	onceCalled  = "select play.once('one');"
	onceUnknown = onceCalled + "select play.once('two'), play.too_late();"
	// heldUnknown is not in the ledger of jobs.
	heldUnknown  = pending + "select pawl_v1.job_claim('q', 1);" + onceUnknown
	twoUnknown   = heldUnknown + "select play.refund_is_unknown(), play.wait_for_verdict();"
	onceSettled  = onceUnknown + "select play.verdict('not_executed');"
	onceRefused  = onceCalled + "select play.ends('one', 'refused');"
	notExecuted  = "select play.verdict('not_executed')"
	oneExecuted  = "select play.ends('one', 'executed')"
	onceTwo      = "select play.once('next')"
	holdsJob     = "select h.outcome from pawl_v1.job_hold(1, 1) as h"
	waitsForIt   = "select play.wait_for_verdict()"
	checkedTwice = "select play.checked('one'), play.too_late(); select play.checked('probe'); select play.checked('again');"
)

// restarts is allowed if a step became unknown during an end or a verdict. That call must start
// over to lock the job first.
var restarts = []string{lost}

// stepScenes are the concurrent pairs for the evidence and the state of a step.
var stepScenes = []scene{
	{name: "step: plan, plan", sides: [][]string{{onceTwo}, {"select play.once('other')"}}},
	{name: "step: plan aborted, plan", sides: [][]string{{onceTwo, rollback}, {"select play.once('other')"}}},
	{name: "step: plan, plan, plan", sides: [][]string{{onceTwo, rollback}, {"select play.once('other')"}, {"select play.once('third')"}}},
	{name: "step: plan, end", given: onceCalled, refusal: restarts, sides: [][]string{{onceTwo}, {oneExecuted}}},
	{name: "step: plan, not sent", given: onceCalled, refusal: restarts, sides: [][]string{{onceTwo}, {"select play.ends('one', 'not_sent')"}}},
	{name: "step: plan, ambiguous end", given: onceCalled, refusal: restarts, sides: [][]string{{onceTwo}, {"select play.ends('one', 'ambiguous')"}}},
	{name: "step: plan past the provider's memory, end", given: "select play.keyed('one'), play.provider_forgets();", refusal: restarts,
		sides: [][]string{{"select play.keyed('next')"}, {oneExecuted}}},
	{name: "step: plan with the key, end", given: "select play.keyed('one');", sides: [][]string{{"select play.keyed('next')"}, {oneExecuted}}},
	{name: "step: end, end of another call", given: "select play.keyed('one'); select play.keyed('two');", sides: [][]string{{oneExecuted}, {"select play.ends('two', 'executed')"}}},
	{name: "step: end, refusal of another call", given: "select play.keyed('one'); select play.keyed('two');", sides: [][]string{{oneExecuted}, {"select play.ends('two', 'refused')"}}},
	{name: "step: end, the same otherwise", given: onceCalled, refusal: restarts, sides: [][]string{{oneExecuted}, {"select play.ends('one', 'ambiguous')"}}},
	{name: "step: verdict, end", given: onceUnknown, refusal: restarts, sides: [][]string{{notExecuted}, {oneExecuted}}},
	{name: "step: verdict, verdict", given: onceUnknown, refusal: restarts, sides: [][]string{{notExecuted}, {"select play.verdict('executed')"}}},
	{name: "step: verdict aborted, end", given: onceUnknown, refusal: restarts, sides: [][]string{{notExecuted, rollback}, {oneExecuted}}},
	{name: "step: early verdict, end", given: onceCalled + "select play.once('two');", refusal: restarts, sides: [][]string{{notExecuted}, {oneExecuted}}},
	{name: "step: verdict on an older call, verdict", given: onceSettled + "select play.once('next'), play.once('again'), play.too_late();", refusal: restarts,
		sides: [][]string{{"select play.verdict('executed')"}, {"select play.verdict('not_executed', 'one')", "select play.once('third')"}}},
	{name: "step: verdict, plan, verdict on the older call", given: onceUnknown, refusal: restarts,
		sides: [][]string{{notExecuted, "select play.once('next')", "select play.ends('next', 'ambiguous'), play.too_late()"}, {"select play.verdict('not_executed', 'one')", "select play.once('third')"}}, apart: true},
	{name: "step: again, again", given: onceRefused, refusal: restarts, sides: [][]string{{"select play.again('one')"}, {"select play.again('one')"}}},
	{name: "step: again, plan", given: onceRefused, refusal: restarts, sides: [][]string{{"select play.again('one')", onceTwo}, {"select play.once('third')"}}},
	{name: "step: again and plan, again on the older call", given: onceRefused, refusal: restarts,
		sides: [][]string{{"select play.again('one')", onceTwo, "select play.ends('next', 'refused')"}, {"select play.again('one')", "select play.once('third')"}}, apart: true},
	{name: "step: again and plan, the refusal told twice", given: "select play.keyed('one'); select play.ends('one', 'refused');", refusal: restarts,
		sides: [][]string{{"select play.ends('one', 'refused')"}, {"select play.again('one')", "select play.keyed('next')", "select play.ends('next', 'executed')"}}, apart: true},
	{name: "step: again, the call was executed after all", given: "select play.keyed('one'); select play.keyed('two'); select play.ends('one', 'refused'), play.too_late();", refusal: restarts,
		sides: [][]string{{"select play.again('two')", "select play.keyed('next')"}, {"select play.ends('two', 'executed')"}}},
	{name: "step: late end, plan", given: onceSettled, refusal: restarts, sides: [][]string{{oneExecuted}, {onceTwo}}},
	{name: "step: late end, end", given: onceSettled + "select play.once('next');", refusal: restarts, sides: [][]string{{oneExecuted}, {"select play.ends('next', 'ambiguous')"}}},
	{name: "step: job fails, verdict", given: heldUnknown, refusal: restarts, sides: [][]string{{waitsForIt}, {notExecuted}}},
	{name: "step: job fails, end", given: heldUnknown, refusal: restarts, sides: [][]string{{waitsForIt}, {oneExecuted}}},
	{name: "step: job fails, end, verdict", given: heldUnknown, refusal: restarts, sides: [][]string{{waitsForIt}, {oneExecuted}, {notExecuted}}},
	{name: "step: job is held and fails, verdict", given: heldUnknown, refusal: restarts, sides: [][]string{{holdsJob, waitsForIt}, {notExecuted}}},
	{name: "step: verdicts on two steps of a job", given: twoUnknown, refusal: restarts, sides: [][]string{{notExecuted}, {"select play.refund_executed()"}}},
	{name: "step: verdict on one step of a job, end of another", given: twoUnknown, refusal: restarts, sides: [][]string{{"select play.refund_executed()"}, {oneExecuted}}},
	{name: "step: job is held and plans, end", given: pending + "select pawl_v1.job_claim('q', 1);" + onceCalled, refusal: restarts,
		sides: [][]string{{holdsJob, onceTwo, waitsForIt}, {oneExecuted}}},
	{name: "step: job waits, verdict, end", given: heldUnknown + waitsForIt + ";", refusal: restarts, sides: [][]string{{notExecuted}, {oneExecuted}}},
	{name: "step: late probe, plan", given: checkedTwice + "select play.ends('again', 'not_executed'); select play.checked('call');",
		sides: [][]string{{"select play.ends('probe', 'not_executed')"}, {"select play.checked('next')"}}},
	{name: "step: probe, end", given: checkedTwice, sides: [][]string{{"select play.ends('again', 'not_executed')", "select play.checked('next')"}, {oneExecuted}}},
	// Job 2 now works for the owner and may still run.
	{name: "step: another job meets its end, purge", given: "select play.keyed('one');" + oneExecuted + "; select play.age_steps(), setval('pawl.job_id_seq', 2, false); select pawl_v1.job_enqueue('q', 'k', '');",
		sides: [][]string{{`select play.plan('next', 'keyed', '{"job_id": 2}')`}, {"select play.purge_steps()"}}},
	{name: "step: purge, plan", given: onceCalled + oneExecuted + "; select play.age_steps();", sides: [][]string{{"select play.purge_steps()"}, {onceTwo}}},
	{name: "step: purge, purge", given: onceCalled + oneExecuted + "; select play.age_steps();", sides: [][]string{{"select play.purge_steps()"}, {"select play.purge_steps()"}}},
	{name: "step: purge, late end", given: "select play.keyed('one'); select play.keyed('two');" + oneExecuted + "; select play.age_steps();",
		sides: [][]string{{"select play.purge_steps()"}, {"select play.ends('two', 'executed')"}}},
	{name: "step: not sent, purge", given: onceCalled + "select play.age_steps();", sides: [][]string{{"select play.ends('one', 'not_sent')"}, {"select play.purge_steps()"}}},
	{name: "step: end, purge", given: onceCalled + "select play.age_steps();", sides: [][]string{{oneExecuted}, {"select play.purge_steps()"}}},
}

// stepMutants are defects of steps that the scenes must find.
var stepMutants = []mutant{
	{name: "a doubt is no doubt", property: "p_ext", scene: "step: plan, plan", edits: []edit{{"step_begin", "when v_doubt.calls = 0 then 'call'", "when true then 'call'"}}},
	{name: "a key is remembered for ever", property: "p_ext", scene: "step: plan past the provider's memory, end", edits: []edit{{"step_begin", " and v_now < v_step_row.memory_ends_at then", " then"}}},
	{name: "late evidence is refused", property: "p_loss", scene: "step: late end, end", edits: []edit{{"step_end", "or v_call.fence is null then", "or v_call.fence is null or p_fence <= v_step_row.cleared then"}}},
	{name: "what is known of a call is overwritten", property: "p_loss", scene: "step: end, the same otherwise", edits: []edit{
		{"step_end", "coalesce(v_call.outcome, 'ambiguous') not in ('ambiguous', p_outcome)", "false"}}},
	{name: "an end is overwritten", property: "p_term", scene: "step: end, refusal of another call", edits: []edit{{"step_end", "when v_step_row.status in ('succeeded', 'failed_final') then v_step_row.status::text", "when false then ''"}}},
	{name: "an old probe clears a new call", property: "p_ext", scene: "step: late probe, plan", edits: []edit{{"step_end", "when p_outcome = 'not_executed' and p_fence = e.fence then e.fence", "when p_outcome = 'not_executed' then e.fence"}}},
	{name: "a verdict before the time to send is over", property: "p_ext", scene: "step: early verdict, end", edits: []edit{{"step_settle", "p_verdict <> 'executed' and v_until > clock_timestamp()", "false"}}},
	{name: "a verdict names no call", property: "p_ext", scene: "step: verdict on an older call, verdict", edits: []edit{{"step_settle", "v_before.fence <> p_fence", "false"}}},
	{name: "a new key for a newer refusal", property: "p_fence", scene: "step: again and plan, again on the older call", edits: []edit{{"step_again", "v_before.fence <> p_fence", "false"}}},
	{name: "a new key for what was executed", property: "p_ext", scene: "step: again, the call was executed after all", edits: []edit{{"step_again", "is distinct from 'failed_final' or v_seen.executed", "is distinct from 'failed_final'"}}},
	{name: "an old refusal ends the new key's step", property: "p_term", scene: "step: again and plan, the refusal told twice", edits: []edit{{"step_end", "p_outcome = 'refused' and p_fence <= v_step_row.cleared", "false"}}},
	{name: "a verdict without the job's lock", property: "p_frozen", scene: "step: verdicts on two steps of a job", edits: []edit{{"step_settle", "from pawl_v1._step_is_unknown(p_scope, p_key, p_step) as u", "from (select true as known, e.job_id from pawl.step as e where e.scope = p_scope and e.key = p_key and e.step = p_step) as u"}}},
	{name: "an end without the job's lock", property: "p_frozen", scene: "step: verdict on one step of a job, end of another", edits: []edit{{"step_end", "from pawl_v1._step_is_unknown(p_scope, p_key, p_step) as u", "from (select true as known, e.job_id from pawl.step as e where e.scope = p_scope and e.key = p_key and e.step = p_step) as u"}}},
	{name: "a verdict only locks the job", property: "p_frozen", level: levels[1], scene: "step: verdicts on two steps of a job", edits: []edit{
		{"_step_is_unknown", "update pawl.job as j\n     set available_at = j.available_at\n   where j.id = _step_is_unknown.job_id;", "perform from pawl.job as j where j.id = _step_is_unknown.job_id for update;"}}},
	{name: "a job waits without looking", property: "p_frozen", scene: "step: job fails, verdict", edits: []edit{{"job_fail", "v_unknown := found;", "v_unknown := true;"}}},
	{name: "a verdict leaves its job waiting", property: "p_frozen", scene: "step: job waits, verdict, end", edits: []edit{{"step_settle", "perform pawl_v1._step_resume(v_after.job_id);", "null;"}}},
	{name: "a step follows its first job only", property: "p_loss", scene: "step: another job meets its end, purge", edits: []edit{{"step_begin", "(p_options ->> 'job_id')::bigint <> coalesce(v_step_row.job_id, 0)", "false"}}},
	{name: "purge what is in doubt", property: "p_loss", scene: "step: end, purge", edits: []edit{{"step_purge", " and (pawl_v1._step_doubts(e)).calls = 0", ""}}},
}

// judgeSteps reads the ledger of the step and its rows, and returns the violated property.
func judgeSteps(ctx context.Context, conn *pgx.Conn) error {
	notes, err := collect(ctx, conn, "select t.fence, t.verb from play.step_told as t order by t.n", func(row pgx.CollectableRow) (n note, err error) {
		return n, row.Scan(&n.fence, &n.verb)
	})
	if err != nil || len(notes) == 0 {
		return err
	}
	l := stepLife{calls: map[int64]string{}, status: "planned"}
	for _, n := range notes {
		if property := l.next(n); property != "" {
			return violation{property, fmt.Sprintf("%s with fence %d was accepted; %v", n.verb, n.fence, notes)}
		}
	}
	calls, err := collect(ctx, conn, "select c.fence, coalesce(c.outcome, '') from pawl.step_call as c where c.step = 'charge'", func(row pgx.CollectableRow) (n note, err error) {
		return n, row.Scan(&n.fence, &n.verb)
	})
	if err != nil {
		return err
	}
	if err := l.match(calls); err != nil {
		return err
	}
	var status string
	var stuck bool
	err = conn.QueryRow(ctx, `select coalesce((select e.status from pawl.step as e where e.step = 'charge'), ''),
  exists (select from pawl.job as j where j.status = 'unknown') and not exists (select from pawl.step as e where e.status = 'unknown')`).Scan(&status, &stuck)
	switch {
	case err != nil:
		return err
	case stuck:
		return violation{"p_frozen", fmt.Sprintf("the job waits for a verdict that was given: %v", notes)}
	case status != l.status:
		return violation{"p_term", fmt.Sprintf("the step is %q, the ledger says %q: %v", status, l.status, notes)}
	}
	return nil
}

// A stepLife is the state of the step after some notes. It shares no code with the functions that
// it judges.
type stepLife struct {
	newest, cleared int64
	calls           map[int64]string // the end of each call; "" while unknown
	policy, status  string
	forgotten       bool // by the provider
	inherited       bool // a job that may still run was told the outcome
}

func (l *stepLife) doubts() (n int) {
	for fence, outcome := range l.calls {
		if fence > l.cleared && (outcome == "" || outcome == "ambiguous") {
			n++
		}
	}
	return n
}

func (l *stepLife) next(n note) (property string) {
	over := slices.Contains([]string{"succeeded", "failed_final"}, l.status)
	switch n.verb {
	case "at_most_once call", "keyed call", "checked call":
		l.policy = n.verb[:len(n.verb)-len(" call")]
		switch {
		case over:
			return "p_term"
		case n.fence <= l.newest:
			return "p_fence"
		case l.status == "unknown", l.doubts() > 0 && (l.policy != "keyed" || l.forgotten):
			return "p_ext"
		}
		l.newest, l.calls[n.fence], l.status = n.fence, "", "planned"
	case "checked probe":
		if over {
			return "p_term"
		}
		l.newest, l.policy = n.fence, "checked"
	case "forgotten":
		l.forgotten = true
	case "unknown":
		if over || l.doubts() == 0 {
			return "p_term"
		}
		l.status = "unknown"
	case "early not_executed":
		return "p_ext"
	case "renewed":
		switch {
		case l.status != "failed_final":
			return "p_term"
		case slices.Contains(slices.Collect(maps.Values(l.calls)), "executed"):
			return "p_ext"
		case n.fence != l.newest:
			return "p_fence"
		}
		l.cleared, l.status, l.forgotten = l.newest, "planned", false
	case "settled not_executed", "settled executed":
		switch {
		case l.status != "unknown":
			return "p_held"
		case n.fence != l.newest: // other calls remain in doubt
			return "p_ext"
		}
		l.cleared, l.status = l.newest, map[string]string{"settled executed": "succeeded", "settled not_executed": "planned"}[n.verb]
	case "inherited":
		l.inherited = true
	case "purged":
		if !over && l.doubts() > 0 || l.inherited {
			return "p_loss"
		}
		*l = stepLife{newest: l.newest, calls: map[int64]string{}}
	default:
		l.ends(n)
	}
	return ""
}

// ends handles a provider's outcome, reported by a caller or a probe.
func (l *stepLife) ends(n note) {
	if l.status == "" {
		return // the step was purged
	}
	if seen, isCall := l.calls[n.fence]; isCall {
		if seen != "" && seen != "ambiguous" {
			return
		}
		l.calls[n.fence] = n.verb
	}
	switch {
	case slices.Contains([]string{"succeeded", "failed_final"}, l.status):
	case n.verb == "executed":
		l.status = "succeeded"
	// A call that was settled since, or whose key is obsolete.
	case n.verb == "refused" && n.fence <= l.cleared:
	case n.verb == "refused" && (l.doubts() == 0 || l.policy == "keyed"):
		l.status = "failed_final"
	case n.verb == "not_executed" && n.fence == l.newest:
		l.cleared = n.fence
	case n.verb == "ambiguous" && l.policy == "at_most_once" && n.fence > l.cleared:
		l.status = "unknown"
	case l.status == "unknown" && l.doubts() == 0:
		l.status = "planned"
	}
}

// match compares the ledger's outcome of each call with the stored one.
func (l *stepLife) match(rows []note) error {
	kept := map[int64]string{}
	for _, row := range rows {
		kept[row.fence] = row.verb
	}
	for fence, outcome := range l.calls {
		if got, found := kept[fence]; !found || got != outcome {
			return violation{"p_loss", fmt.Sprintf("call %d ended %q, kept is %q", fence, outcome, got)}
		}
	}
	return nil
}
