//go:build proof

package schematest_test

// playGates is play's part for deliveries that come together, or that have an order by their lane
// or by their number at a gate.
const playGates = `
create table play.passed (n bigint generated always as identity primary key, seq bigint not null, how text not null);

-- A delivery with a number. Its handler works in the transaction that passed the gate. An early
-- delivery is held as a job, which is not due until it is promoted.
create function play.gated(p_seq bigint, p_mode text default 'strict', p_message text default null) returns text language plpgsql as $$
declare
  v_message text := coalesce(p_message, 'm' || p_seq);
  v_said    text;
  v_job     bigint;
begin
  perform pawl_v1.inbox_claim('gate', v_message, sha256(''));
  select p.outcome into v_said from pawl_v1.sequence_gate_pass('gate', 'r', p_seq, jsonb_build_object('mode', p_mode)) as p;
  if v_said = 'passed' then
    insert into play.passed (seq, how) values (p_seq, p_mode);
  elsif v_said = 'early' then
    select l.job_id into v_job from pawl_v1.inbox_store('gate', v_message, 'q', 'k', '', jsonb_build_object('attempts', 0, 'retry_in_ms', 1000000000, 'headers', jsonb_build_object('seq', p_seq))) as l;
    perform pawl_v1.sequence_gate_hold('gate', 'r', p_seq, v_job);
  end if;
  return v_said;
end $$;

-- The attempt of a held job after its wait has ended.
create function play.wake(p_job bigint, p_seq bigint) returns text language plpgsql as $$
declare
  v_said text;
begin
  perform pawl_v1.job_hold(p_job, 1);
  select p.outcome into v_said from pawl_v1.sequence_gate_pass('gate', 'r', p_seq, '{"mode": "strict"}') as p;
  if v_said = 'passed' then
    insert into play.passed (seq, how) values (p_seq, 'strict');
  elsif v_said = 'early' then
    perform pawl_v1.sequence_gate_hold_again('gate', 'r', p_seq, 'm' || p_seq, p_job, '{"retry_in_ms": 1000000000}');
  end if;
  perform pawl_v1.job_finish(p_job, 1);
  return v_said;
end $$;

create function play.release() returns text language plpgsql as $$
declare
  v_said   text;
  v_detail jsonb;
begin
  select r.outcome, r.detail into v_said, v_detail from pawl_v1.sequence_gate_release('gate', 'r', 'ann', 'a reason') as r;
  if v_said = 'released' then
    insert into play.passed (seq, how)
    select g, 'given up' from generate_series((v_detail ->> 'before')::bigint + 1, (v_detail ->> 'last')::bigint) as g;
  end if;
  return v_said;
end $$;

create function play.begin_behind(p_last bigint) returns text language plpgsql as $$
begin
  perform pawl_v1.sequence_gate_reset('gate', 'r', p_last, 'ann', 'a reason');
  insert into play.passed (seq, how) select g, 'given up' from generate_series(1, p_last) as g;
  return 'reset';
end $$;

create function play.reset_gates() returns void language sql as $$
  delete from play.passed; delete from pawl.sequence_gate; delete from pawl.sequence_gate_held; delete from pawl.delivery $$;

-- Judges the gate after the sessions have ended.
create view play.odd_gates as
select 'p_order' as property, 'number ' || b.seq || ' passed after ' || a.seq as what
  from play.passed as a join play.passed as b on b.n > a.n and b.seq <= a.seq
union all
select 'p_order', 'number ' || p.seq || ' passed and ' || p.seq - 1 || ' did not'
  from play.passed as p
 where p.how = 'strict' and p.seq > 1 and not exists (select from play.passed as b where b.seq = p.seq - 1)
union all
select 'p_stuck', 'number ' || (j.headers ->> 'seq') || ' could pass after ' || g.last || ' and is not due'
  from pawl.job as j
  join pawl.sequence_gate as g on g.resource = 'r' and (j.headers ->> 'seq')::bigint <= g.last + 1
 where j.status = 'pending' and j.available_at > clock_timestamp();

-- Deliveries that are claimed together.
create function play.deliver_many(p_keys text[]) returns text language sql as $$
  with c as (select c.outcome, p_keys[c.n] as key
               from pawl_v1.inbox_claim_many('many', p_keys, array_fill(sha256(''), array[cardinality(p_keys)])) as c),
       e as (insert into play.effect (what) select 'many ' || c.key from c where c.outcome = 'processed')
  select string_agg(c.key || ':' || c.outcome, ' ' order by c.key) from c $$;

-- A delivery of lane l that is handled at once if no job precedes it. It has a place in the lane
-- like a job.
create function play.deliver_in_lane(p_key text, p_fails boolean default false) returns text language plpgsql as $$
declare
  v_said  text;
  v_place bigint;
begin
  select c.outcome into v_said from pawl_v1.inbox_claim('lanes', p_key, sha256(''), '{"queue": "q", "lane": "l"}') as c;
  if v_said = 'behind' or v_said = 'processed' and p_fails then
    perform pawl_v1.inbox_store('lanes', p_key, 'q', 'k', '', '{"lane": "l"}');
    insert into play.place (job, lane, position)
    select j.id, j.lane_id, j.position from pawl.job as j, pawl.inbox as i where i.key = p_key and j.id = i.job_id;
  elsif v_said = 'processed' then
    v_place := nextval('pawl.position_seq');
    insert into play.place (job, lane, position) select -v_place, l.id, v_place from pawl.lane as l where l.name = 'l';
    insert into play.ledger (job, fence, verb) values (-v_place, 1, 'claim'), (-v_place, 1, 'finish');
    perform play.effect(-v_place);
  end if;
  return v_said;
end $$;
`

func gated(seq string) string  { return "select play.gated(" + seq + ")" }
func newest(seq string) string { return "select play.gated(" + seq + ", 'latest')" }

const (
	atZero      = "select play.begin_behind(0);"
	threeIsHeld = atZero + "select play.gated(1); select play.gated(3);"
	twoWakes    = atZero + "select play.gated(2); update pawl.job set available_at = now(); select pawl_v1.job_claim('q', null);"
	release     = "select play.release()"

	deliverX = "select play.deliver_in_lane('x')"
	deliverY = "select play.deliver_in_lane('y')"
	failX    = "select play.deliver_in_lane('x', true)"
)

// orderScenes are the concurrent pairs for gates, and for deliveries that come together or have a
// lane.
var orderScenes = []scene{
	{name: "gate: pass, hold", given: atZero, sides: [][]string{{gated("1")}, {gated("2")}}},
	{name: "gate: pass aborted, hold", given: atZero, sides: [][]string{{gated("1"), rollback}, {gated("2")}}},
	{name: "gate: hold aborted, pass", given: atZero, sides: [][]string{{gated("2"), rollback}, {gated("1")}}},
	{name: "gate: pass, pass", given: atZero, sides: [][]string{{gated("1")}, {"select play.gated(1, 'strict', 'another')"}}},
	{name: "gate: pass, hold, hold", given: atZero, sides: [][]string{{gated("1")}, {gated("2")}, {gated("3")}}},
	{name: "gate: the gap closes, hold", given: threeIsHeld, sides: [][]string{{gated("2")}, {gated("4")}}},
	{name: "gate: release, the gap closes", given: threeIsHeld, sides: [][]string{{release}, {gated("2")}}},
	{name: "gate: release, hold", given: atZero + gated("1") + ";", sides: [][]string{{release}, {gated("3")}}},
	{name: "gate: reset, hold", given: gated("2") + ";", sides: [][]string{{"select play.begin_behind(1)"}, {gated("3")}}},
	{name: "gate: wake, pass", given: twoWakes, sides: [][]string{{"select play.wake(1, 2)"}, {gated("1")}}},
	{name: "gate: wake aborted, pass", given: twoWakes, sides: [][]string{{"select play.wake(1, 2)", rollback}, {gated("1")}}},
	{name: "gate: wake, release", given: twoWakes, sides: [][]string{{"select play.wake(1, 2)"}, {release}}},
	{name: "gate: newer, older", sides: [][]string{{newest("5")}, {newest("4")}}},
	{name: "gate: newer aborted, older", sides: [][]string{{newest("5"), rollback}, {newest("4")}}},

	{name: "deliver many, reversed", sides: [][]string{{"select play.deliver_many('{a,b}')"}, {"select play.deliver_many('{b,a}')"}}},
	{name: "deliver many, reversed aborted", sides: [][]string{{"select play.deliver_many('{a,b}')"}, {"select play.deliver_many('{c,b,a}')", rollback}}},
	{name: "deliver many, reversed, behind another", sides: [][]string{{"select play.deliver_many('{m}')", rollback}, {"select play.deliver_many('{a,m,z}')"}, {"select play.deliver_many('{z,m,a}')"}}},

	{name: "lane: deliver, deliver", given: workers, sides: [][]string{{deliverX}, {deliverY}}},
	{name: "lane: failing delivery, deliver", given: workers, sides: [][]string{{failX}, {deliverY}}},
	{name: "lane: failing delivery aborted, deliver", given: workers, sides: [][]string{{failX, rollback}, {deliverY}}},
	{name: "lane: deliver, finish", given: laneHeld, sides: [][]string{{deliverX}, {finishOne}}},
	{name: "lane: deliver, finish of the only one", given: workers + enqueueLane + ";" + claimOne + ";", sides: [][]string{{deliverX}, {finishOne}}},
	{name: "lane: deliver, enqueue", given: workers, sides: [][]string{{deliverX}, {enqueueLane}}},
	{name: "lane: deliver, purge", given: laneIdle, sides: [][]string{{deliverX}, {purge}}},
}

func init() { scenes = append(scenes, orderScenes...) }

const enterGate = "    update pawl.sequence_gate as g\n       set ver = g.ver + 1,\n           last = coalesce(g.last, p_last)\n     where g.consumer = p_consumer\n       and g.resource = p_resource\n    returning g.*\n         into v_gate;"

// orderMutants are defects of gates and lanes that the scenes must find.
var orderMutants = []mutant{
	{name: "a gate is looked at without updating it", property: "p_stuck", scene: "gate: pass, hold", edits: []edit{
		{"_sequence_gate_enter", enterGate, "    select g.* into v_gate from pawl.sequence_gate as g where g.consumer = p_consumer and g.resource = p_resource;"}}},
	{name: "a gate is locked and not updated", property: "p_stuck", scene: "gate: pass, hold", level: levels[1], edits: []edit{
		{"_sequence_gate_enter", enterGate, "    select g.* into v_gate from pawl.sequence_gate as g where g.consumer = p_consumer and g.resource = p_resource for update;"}}},
	{name: "passing promotes no job", property: "p_stuck", scene: "gate: pass, hold", edits: []edit{
		{"sequence_gate_pass", "perform pawl_v1._sequence_gate_promote(p_consumer, p_resource, p_seq + 1);", "null;"}}},
	{name: "releasing promotes no job", property: "p_stuck", scene: "gate: release, hold", edits: []edit{
		{"sequence_gate_release", "perform pawl_v1._sequence_gate_promote(p_consumer, p_resource, v_next);", "null;"}}},
	{name: "a strict gate lets newer ones pass", property: "p_order", scene: "gate: pass, hold", edits: []edit{
		{"sequence_gate_pass", "v_mode = 'latest' or p_seq = v_gate.last + 1", "true"}}},
	{name: "an old number passes", property: "p_order", scene: "gate: newer, older", edits: []edit{{"sequence_gate_pass", "if p_seq <= v_gate.last then", "if false then"}}},
	{name: "an early one is not held", property: "p_stuck", scene: "gate: pass, hold", edits: []edit{
		{"sequence_gate_hold", "  insert into pawl.sequence_gate_held as h (consumer, resource, seq, job_id)\n  values (p_consumer, p_resource, p_seq, p_job_id);\n", ""}}},
	{name: "deliveries in the order given", property: "p_answer", scene: "deliver many, reversed, behind another", edits: []edit{
		{"inbox_claim_many", "select distinct on (r.key collate \"C\") p_consumer", "select p_consumer"},
		{"inbox_claim_many", "       order by r.key collate \"C\", r.n\n      on conflict", "       order by r.n\n      on conflict"}}},
	{name: "a duplicate among many is processed", property: "p_once", scene: "deliver many, reversed", edits: []edit{
		{"inbox_claim_many", "f.key is not null and r.turn = 1 then 'processed'", "true then 'processed'"}}},
	{name: "a delivery does not look at its lane", property: "p_order", scene: "lane: deliver, finish", edits: []edit{
		{"inbox_claim", "v_lane is not null and pawl_v1._lane_is_open(v_lane)", "false"}}},
	{name: "a failing delivery leaves its lane", property: "p_order", scene: "lane: failing delivery, deliver", edits: []edit{
		{"_lane_is_open", "exists (select from pawl.job as j where j.lane_id = p_lane and j.lane_head)", "false"}}},
}
