package sql_test

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// effectPlay are the verbs of steps, as play has those of jobs. Everything is about one step, charge of (s, k), and job 1, which
// waits for its verdict. Calls have names, as their fences cannot be foretold.
const effectPlay = `
create table play.called (name text primary key, fence bigint not null);
create table play.effect_told (n bigint generated always as identity primary key, fence bigint not null, verb text not null);

create function play.tell_effect(p_fence bigint, p_verb text) returns void language sql as $$
  insert into play.effect_told (fence, verb) values (p_fence, p_verb) $$;

create function play.plan(p_name text, p_policy text, p_options jsonb default '{}') returns text language plpgsql as $$
declare
  v_said record;
begin
  select b.outcome, b.fence into v_said
    from pawl_v1.effect_begin('s', 'k', 'charge', sha256('one'),
                              '{"job_id": 1}' || p_options || jsonb_build_object('policy', p_policy, 'provider_key', 'key')) as b;
  if v_said.outcome in ('call', 'probe') then
    perform play.tell_effect(v_said.fence, p_policy || ' ' || v_said.outcome);
    insert into play.called (name, fence) values (p_name, v_said.fence);
  elsif v_said.outcome = 'unknown' then
    perform play.tell_effect(0, 'unknown');
  elsif v_said.outcome = 'replay_success' and p_options ? 'job_id' then
    perform play.tell_effect(0, 'inherited');
  end if;
  return v_said.outcome;
end $$;

create function play.once(p_name text) returns text language sql as $$ select play.plan(p_name, 'at_most_once') $$;
create function play.keyed(p_name text) returns text language sql as $$ select play.plan(p_name, 'keyed') $$;
create function play.checked(p_name text) returns text language sql as $$ select play.plan(p_name, 'checked', '{"settle_ms": 0}') $$;

-- What a provider did is noted whatever the function makes of it: it is true.
create function play.ends(p_name text, p_outcome text) returns text language plpgsql as $$
declare
  v_fence bigint := (select c.fence from play.called as c where c.name = p_name);
  v_said  text;
begin
  if v_fence is null then
    return 'nothing';
  end if;
  select e.outcome into v_said from pawl_v1.effect_end('s', 'k', 'charge', v_fence, p_outcome) as e;
  perform play.tell_effect(v_fence, p_outcome);
  return v_said;
end $$;

-- A person found out about the calls up to p_name, or up to the newest that there was when the verdict began.
create function play.verdict(p_verdict text, p_name text default null) returns text language plpgsql as $$
declare
  v_open  boolean := exists (select from pawl.effect_call as c where c.step = 'charge' and c.outcome is null and c.not_after > clock_timestamp());
  v_fence bigint := case when p_name is null then (select e.fence from pawl.effect as e where e.step = 'charge')
                         else (select c.fence from play.called as c where c.name = p_name) end;
  v_said  text;
begin
  select s.outcome into v_said from pawl_v1.effect_settle('s', 'k', 'charge', coalesce(v_fence, 0), p_verdict, 'ann', 'a reason') as s;
  if v_said = 'settled' then
    perform play.tell_effect(v_fence, case when v_open then 'early ' else 'settled ' end || p_verdict);
  end if;
  return v_said;
end $$;

-- A person has what was refused asked for under a new key.
create function play.again(p_name text) returns text language plpgsql as $$
declare
  v_fence bigint := (select c.fence from play.called as c where c.name = p_name);
  v_said  text;
begin
  select a.outcome into v_said from pawl_v1.effect_again('s', 'k', 'charge', v_fence, 'ann', 'a reason') as a;
  if v_said = 'renewed' then
    perform play.tell_effect(v_fence, 'renewed');
  end if;
  return v_said;
end $$;

create function play.wait_for_verdict() returns text language sql as $$
  select f.outcome from pawl_v1.job_fail(1, 1, '{}', '{"unknown": true, "retry_in_ms": 0}') as f $$;

-- Another step of the job, of which the ledger knows nothing.
create function play.refund_is_unknown() returns void language plpgsql as $$
begin
  for v_n in 1..2 loop
    perform pawl_v1.effect_begin('s', 'k', 'refund', sha256('two'), '{"policy": "at_most_once", "provider_key": "key", "job_id": 1}');
  end loop;
end $$;
create function play.refund_landed() returns text language sql as $$
  select s.outcome from pawl_v1.effect_settle('s', 'k', 'refund', (select e.fence from pawl.effect as e where e.step = 'refund'), 'landed', 'ann', 'a reason') as s $$;

create function play.purge_effects() returns text language plpgsql as $$
declare
  v_purged int;
begin
  select p.purged into v_purged from pawl_v1.effect_purge(10, '{"older_than_ms": 0}') as p;
  if v_purged > 0 then
    perform play.tell_effect(0, 'purged');
  end if;
  return v_purged;
end $$;

-- The time to send is over; the provider has forgotten; so have we.
create function play.too_late() returns void language sql as $$
  update pawl.effect_call set not_after = now() - interval '1 minute' $$;
create function play.provider_forgets() returns void language sql as $$
  update pawl.effect set memory_ends_at = now() - interval '1 minute';
  select play.tell_effect(0, 'forgotten') $$;
create function play.age_effects() returns void language sql as $$
  update pawl.effect set created_at = now() - interval '2 days', expires_at = now() - interval '1 day' $$;

create function play.reset_effects() returns void language sql as $$
  delete from play.effect_told; delete from play.called; delete from pawl.effect; delete from pawl.effect_call $$;
`

const (
	onceCalled   = "select play.once('one');"
	onceUnknown  = onceCalled + "select play.once('two'), play.too_late();"
	heldUnknown  = pending + "select pawl_v1.job_claim('q', 1);" + onceUnknown // the ledger of jobs knows nothing of it
	twoUnknown   = heldUnknown + "select play.refund_is_unknown(), play.wait_for_verdict();"
	onceSettled  = onceUnknown + "select play.verdict('not_landed');"
	onceRefused  = onceCalled + "select play.ends('one', 'refused');"
	notLanded    = "select play.verdict('not_landed')"
	oneLanded    = "select play.ends('one', 'landed')"
	onceTwo      = "select play.once('next')"
	holdsJob     = "select h.outcome from pawl_v1.job_hold(1, 1) as h"
	waitsForIt   = "select play.wait_for_verdict()"
	checkedTwice = "select play.checked('one'), play.too_late(); select play.checked('probe'); select play.checked('again');"
)

// restarts: a step became unknown under an end or a verdict, which then begins anew, to lock the job first.
var restarts = []string{lost}

// effectScenes are pairs that the evidence and the state of a step must get right.
var effectScenes = []scene{
	{name: "effect: plan, plan", sides: [][]string{{onceTwo}, {"select play.once('other')"}}},
	{name: "effect: plan aborted, plan", sides: [][]string{{onceTwo, rollback}, {"select play.once('other')"}}},
	{name: "effect: plan, plan, plan", sides: [][]string{{onceTwo, rollback}, {"select play.once('other')"}, {"select play.once('third')"}}},
	{name: "effect: plan, end", given: onceCalled, refusal: restarts, sides: [][]string{{onceTwo}, {oneLanded}}},
	{name: "effect: plan, not sent", given: onceCalled, refusal: restarts, sides: [][]string{{onceTwo}, {"select play.ends('one', 'not_sent')"}}},
	{name: "effect: plan, ambiguous end", given: onceCalled, refusal: restarts, sides: [][]string{{onceTwo}, {"select play.ends('one', 'ambiguous')"}}},
	{name: "effect: plan past the provider's memory, end", given: "select play.keyed('one'), play.provider_forgets();", refusal: restarts,
		sides: [][]string{{"select play.keyed('next')"}, {oneLanded}}},
	{name: "effect: plan with the key, end", given: "select play.keyed('one');", sides: [][]string{{"select play.keyed('next')"}, {oneLanded}}},
	{name: "effect: end, end of another call", given: "select play.keyed('one'); select play.keyed('two');", sides: [][]string{{oneLanded}, {"select play.ends('two', 'landed')"}}},
	{name: "effect: end, refusal of another call", given: "select play.keyed('one'); select play.keyed('two');", sides: [][]string{{oneLanded}, {"select play.ends('two', 'refused')"}}},
	{name: "effect: end, the same otherwise", given: onceCalled, refusal: restarts, sides: [][]string{{oneLanded}, {"select play.ends('one', 'ambiguous')"}}},
	{name: "effect: verdict, end", given: onceUnknown, refusal: restarts, sides: [][]string{{notLanded}, {oneLanded}}},
	{name: "effect: verdict, verdict", given: onceUnknown, refusal: restarts, sides: [][]string{{notLanded}, {"select play.verdict('landed')"}}},
	{name: "effect: verdict aborted, end", given: onceUnknown, refusal: restarts, sides: [][]string{{notLanded, rollback}, {oneLanded}}},
	{name: "effect: early verdict, end", given: onceCalled + "select play.once('two');", refusal: restarts, sides: [][]string{{notLanded}, {oneLanded}}},
	{name: "effect: verdict on an older call, verdict", given: onceSettled + "select play.once('next'), play.once('again'), play.too_late();", refusal: restarts,
		sides: [][]string{{"select play.verdict('landed')"}, {"select play.verdict('not_landed', 'one')", "select play.once('third')"}}},
	{name: "effect: verdict, plan, verdict on the older call", given: onceUnknown, refusal: restarts,
		sides: [][]string{{notLanded, "select play.once('next')", "select play.ends('next', 'ambiguous'), play.too_late()"}, {"select play.verdict('not_landed', 'one')", "select play.once('third')"}}, apart: true},
	{name: "effect: again, again", given: onceRefused, refusal: restarts, sides: [][]string{{"select play.again('one')"}, {"select play.again('one')"}}},
	{name: "effect: again, plan", given: onceRefused, refusal: restarts, sides: [][]string{{"select play.again('one')", onceTwo}, {"select play.once('third')"}}},
	{name: "effect: again and plan, again on the older call", given: onceRefused, refusal: restarts,
		sides: [][]string{{"select play.again('one')", onceTwo, "select play.ends('next', 'refused')"}, {"select play.again('one')", "select play.once('third')"}}, apart: true},
	{name: "effect: again and plan, the refusal told twice", given: "select play.keyed('one'); select play.ends('one', 'refused');", refusal: restarts,
		sides: [][]string{{"select play.ends('one', 'refused')"}, {"select play.again('one')", "select play.keyed('next')", "select play.ends('next', 'landed')"}}, apart: true},
	{name: "effect: again, the call landed after all", given: "select play.keyed('one'); select play.keyed('two'); select play.ends('one', 'refused'), play.too_late();", refusal: restarts,
		sides: [][]string{{"select play.again('two')", "select play.keyed('next')"}, {"select play.ends('two', 'landed')"}}},
	{name: "effect: late end, plan", given: onceSettled, refusal: restarts, sides: [][]string{{oneLanded}, {onceTwo}}},
	{name: "effect: late end, end", given: onceSettled + "select play.once('next');", refusal: restarts, sides: [][]string{{oneLanded}, {"select play.ends('next', 'ambiguous')"}}},
	{name: "effect: job fails, verdict", given: heldUnknown, refusal: restarts, sides: [][]string{{waitsForIt}, {notLanded}}},
	{name: "effect: job fails, end", given: heldUnknown, refusal: restarts, sides: [][]string{{waitsForIt}, {oneLanded}}},
	{name: "effect: job fails, end, verdict", given: heldUnknown, refusal: restarts, sides: [][]string{{waitsForIt}, {oneLanded}, {notLanded}}},
	{name: "effect: job is held and fails, verdict", given: heldUnknown, refusal: restarts, sides: [][]string{{holdsJob, waitsForIt}, {notLanded}}},
	{name: "effect: verdicts on two steps of a job", given: twoUnknown, refusal: restarts, sides: [][]string{{notLanded}, {"select play.refund_landed()"}}},
	{name: "effect: verdict on one step of a job, end of another", given: twoUnknown, refusal: restarts, sides: [][]string{{"select play.refund_landed()"}, {oneLanded}}},
	{name: "effect: job is held and plans, end", given: pending + "select pawl_v1.job_claim('q', 1);" + onceCalled, refusal: restarts,
		sides: [][]string{{holdsJob, onceTwo, waitsForIt}, {oneLanded}}},
	{name: "effect: job waits, verdict, end", given: heldUnknown + waitsForIt + ";", refusal: restarts, sides: [][]string{{notLanded}, {oneLanded}}},
	{name: "effect: late probe, plan", given: checkedTwice + "select play.ends('again', 'not_landed'); select play.checked('call');",
		sides: [][]string{{"select play.ends('probe', 'not_landed')"}, {"select play.checked('next')"}}},
	{name: "effect: probe, end", given: checkedTwice, sides: [][]string{{"select play.ends('again', 'not_landed')", "select play.checked('next')"}, {oneLanded}}},
	// Job 2 works for the owner now, and may still run.
	{name: "effect: another job meets its end, purge", given: "select play.keyed('one');" + oneLanded + "; select play.age_effects(), setval('pawl.job_id_seq', 2, false); select pawl_v1.job_enqueue('q', 'k', '');",
		sides: [][]string{{`select play.plan('next', 'keyed', '{"job_id": 2}')`}, {"select play.purge_effects()"}}},
	{name: "effect: purge, plan", given: onceCalled + oneLanded + "; select play.age_effects();", sides: [][]string{{"select play.purge_effects()"}, {onceTwo}}},
	{name: "effect: purge, purge", given: onceCalled + oneLanded + "; select play.age_effects();", sides: [][]string{{"select play.purge_effects()"}, {"select play.purge_effects()"}}},
	{name: "effect: purge, late end", given: "select play.keyed('one'); select play.keyed('two');" + oneLanded + "; select play.age_effects();",
		sides: [][]string{{"select play.purge_effects()"}, {"select play.ends('two', 'landed')"}}},
	{name: "effect: not sent, purge", given: onceCalled + "select play.age_effects();", sides: [][]string{{"select play.ends('one', 'not_sent')"}, {"select play.purge_effects()"}}},
	{name: "effect: end, purge", given: onceCalled + "select play.age_effects();", sides: [][]string{{oneLanded}, {"select play.purge_effects()"}}},
}

// effectMutants are ways to get steps wrong.
var effectMutants = []mutant{
	{name: "a doubt is no doubt", property: "p_ext", scene: "effect: plan, plan", edits: []edit{{"effect_begin", "when v_doubt.calls = 0 then 'call'", "when true then 'call'"}}},
	{name: "a key is remembered for ever", property: "p_ext", scene: "effect: plan past the provider's memory, end", edits: []edit{{"effect_begin", " and v_now < v_effect.memory_ends_at then", " then"}}},
	{name: "late evidence is refused", property: "p_loss", scene: "effect: late end, end", edits: []edit{{"effect_end", "or v_call.fence is null then", "or v_call.fence is null or p_fence <= v_effect.cleared then"}}},
	{name: "what is known of a call is overwritten", property: "p_loss", scene: "effect: end, the same otherwise", edits: []edit{
		{"effect_end", "coalesce(v_call.outcome, 'ambiguous') not in ('ambiguous', p_outcome)", "false"}}},
	{name: "an end is overwritten", property: "p_term", scene: "effect: end, refusal of another call", edits: []edit{{"effect_end", "when v_effect.status in ('succeeded', 'failed_final') then v_effect.status::text", "when false then ''"}}},
	{name: "an old probe clears a new call", property: "p_ext", scene: "effect: late probe, plan", edits: []edit{{"effect_end", "when p_outcome = 'not_landed' and p_fence = e.fence then e.fence", "when p_outcome = 'not_landed' then e.fence"}}},
	{name: "a verdict before the time to send is over", property: "p_ext", scene: "effect: early verdict, end", edits: []edit{{"effect_settle", "p_verdict <> 'landed' and v_until > clock_timestamp()", "false"}}},
	{name: "a verdict names no call", property: "p_ext", scene: "effect: verdict on an older call, verdict", edits: []edit{{"effect_settle", "v_before.fence <> p_fence", "false"}}},
	{name: "a new key for a newer refusal", property: "p_fence", scene: "effect: again and plan, again on the older call", edits: []edit{{"effect_again", "v_before.fence <> p_fence", "false"}}},
	{name: "a new key for what landed", property: "p_ext", scene: "effect: again, the call landed after all", edits: []edit{{"effect_again", "is distinct from 'failed_final' or v_seen.landed", "is distinct from 'failed_final'"}}},
	{name: "an old refusal ends the new key's step", property: "p_term", scene: "effect: again and plan, the refusal told twice", edits: []edit{{"effect_end", "p_outcome = 'refused' and p_fence <= v_effect.cleared", "false"}}},
	{name: "a verdict without the job's lock", property: "p_frozen", scene: "effect: verdicts on two steps of a job", edits: []edit{{"effect_settle", "from pawl_v1._effect_is_unknown(p_scope, p_key, p_step) as u", "from (select true as known, e.job_id from pawl.effect as e where e.scope = p_scope and e.key = p_key and e.step = p_step) as u"}}},
	{name: "an end without the job's lock", property: "p_frozen", scene: "effect: verdict on one step of a job, end of another", edits: []edit{{"effect_end", "from pawl_v1._effect_is_unknown(p_scope, p_key, p_step) as u", "from (select true as known, e.job_id from pawl.effect as e where e.scope = p_scope and e.key = p_key and e.step = p_step) as u"}}},
	{name: "a verdict only locks the job", property: "p_frozen", level: levels[1], scene: "effect: verdicts on two steps of a job", edits: []edit{
		{"_effect_is_unknown", "update pawl.job as j\n     set available_at = j.available_at\n   where j.id = _effect_is_unknown.job_id;", "perform from pawl.job as j where j.id = _effect_is_unknown.job_id for update;"}}},
	{name: "a job waits without looking", property: "p_frozen", scene: "effect: job fails, verdict", edits: []edit{{"job_fail", "v_unknown := found;", "v_unknown := true;"}}},
	{name: "a verdict leaves its job waiting", property: "p_frozen", scene: "effect: job waits, verdict, end", edits: []edit{{"effect_settle", "perform pawl_v1._effect_resume(v_after.job_id);", "null;"}}},
	{name: "a step follows its first job only", property: "p_loss", scene: "effect: another job meets its end, purge", edits: []edit{{"effect_begin", "(p_options ->> 'job_id')::bigint <> coalesce(v_effect.job_id, 0)", "false"}}},
	{name: "purge what is in doubt", property: "p_loss", scene: "effect: end, purge", edits: []edit{{"effect_purge", " and (pawl_v1._effect_doubts(e)).calls = 0", ""}}},
}

// judgeEffects reads the ledger of the step and its rows, and names what is broken.
func judgeEffects(ctx context.Context, conn *pgx.Conn) error {
	notes, err := collect(ctx, conn, "select t.fence, t.verb from play.effect_told as t order by t.n", func(row pgx.CollectableRow) (n note, err error) {
		return n, row.Scan(&n.fence, &n.verb)
	})
	if err != nil || len(notes) == 0 {
		return err
	}
	l := effectLife{calls: map[int64]string{}, status: "planned"}
	for _, n := range notes {
		if property := l.next(n); property != "" {
			return violation{property, fmt.Sprintf("%s with fence %d was accepted; %v", n.verb, n.fence, notes)}
		}
	}
	calls, err := collect(ctx, conn, "select c.fence, coalesce(c.outcome, '') from pawl.effect_call as c where c.step = 'charge'", func(row pgx.CollectableRow) (n note, err error) {
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
	err = conn.QueryRow(ctx, `select coalesce((select e.status from pawl.effect as e where e.step = 'charge'), ''),
  exists (select from pawl.job as j where j.status = 'unknown') and not exists (select from pawl.effect as e where e.status = 'unknown')`).Scan(&status, &stuck)
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

// An effectLife is where the step is after the notes so far. It shares nothing with the functions that it judges.
type effectLife struct {
	newest, cleared int64
	calls           map[int64]string // how each ended: "" as long as nobody said
	policy, status  string
	forgotten       bool // by the provider
	inherited       bool // a job that may still run was told how it ended
}

func (l *effectLife) doubts() (n int) {
	for fence, outcome := range l.calls {
		if fence > l.cleared && (outcome == "" || outcome == "ambiguous") {
			n++
		}
	}
	return n
}

func (l *effectLife) next(n note) (property string) {
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
	case "early not_landed":
		return "p_ext"
	case "renewed":
		switch {
		case l.status != "failed_final":
			return "p_term"
		case slices.Contains(slices.Collect(maps.Values(l.calls)), "landed"):
			return "p_ext"
		case n.fence != l.newest:
			return "p_fence"
		}
		l.cleared, l.status, l.forgotten = l.newest, "planned", false
	case "settled not_landed", "settled landed":
		switch {
		case l.status != "unknown":
			return "p_held"
		case n.fence != l.newest: // calls of which the verdict says nothing are as much in doubt as before
			return "p_ext"
		}
		l.cleared, l.status = l.newest, map[string]string{"settled landed": "succeeded", "settled not_landed": "planned"}[n.verb]
	case "inherited":
		l.inherited = true
	case "purged":
		if !over && l.doubts() > 0 || l.inherited {
			return "p_loss"
		}
		*l = effectLife{newest: l.newest, calls: map[int64]string{}}
	default:
		l.ends(n)
	}
	return ""
}

// ends is what a provider did, told by whoever called or asked.
func (l *effectLife) ends(n note) {
	if l.status == "" {
		return // of a step that was purged
	}
	if seen, isCall := l.calls[n.fence]; isCall {
		if seen != "" && seen != "ambiguous" {
			return
		}
		l.calls[n.fence] = n.verb
	}
	switch {
	case slices.Contains([]string{"succeeded", "failed_final"}, l.status):
	case n.verb == "landed":
		l.status = "succeeded"
	case n.verb == "refused" && n.fence <= l.cleared: // of a call that was settled since, or whose key is no more
	case n.verb == "refused" && (l.doubts() == 0 || l.policy == "keyed"):
		l.status = "failed_final"
	case n.verb == "not_landed" && n.fence == l.newest:
		l.cleared = n.fence
	case n.verb == "ambiguous" && l.policy == "at_most_once" && n.fence > l.cleared:
		l.status = "unknown"
	case l.status == "unknown" && l.doubts() == 0:
		l.status = "planned"
	}
}

// match compares what was told of each call with what is kept of it.
func (l *effectLife) match(rows []note) error {
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
