//go:build proof

package schematest_test

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// playLanes is play's part for lanes. It records where each job was placed, and which lanes must be
// promoted after the commit.
const playLanes = `
create table play.place (job bigint primary key, lane bigint not null, position bigint not null);
create table play.told (lane bigint not null);

create function play.tell(p_detail jsonb) returns void language sql as $$
  insert into play.told select t.lane::bigint from jsonb_array_elements_text(p_detail -> 'skipped') as t (lane) $$;

create function play.enqueue_lanes(p_lanes text[], p_policy text default 'block') returns text language plpgsql as $$
begin
  if cardinality(p_lanes) = 1 then
    perform pawl_v1.job_enqueue('q', 'k', '', jsonb_build_object('lane', p_lanes[1], 'lane_policy', p_policy));
  else
    perform pawl_v1.job_enqueue_many(array_fill('q'::text, array[cardinality(p_lanes)]), array_fill('k'::text, array[cardinality(p_lanes)]),
      array_fill(''::bytea, array[cardinality(p_lanes)]), p_options => jsonb_build_object('lanes', p_lanes, 'lane_policy', p_policy));
  end if;
  insert into play.place (job, lane, position)
  select j.id, j.lane_id, j.position from pawl.job as j
   where j.lane_id is not null and j.xmin::text = pg_current_xact_id()::text and not exists (select from play.place as p where p.job = j.id);
  return 'enqueued';
end $$;

create function play.unblock() returns text language plpgsql as $$
declare
  v_outcome text;
  v_detail  jsonb;
begin
  select u.outcome, u.detail into v_outcome, v_detail from pawl_v1.lane_unblock('q', 'l', 'somebody', 'a reason') as u;
  perform play.tell(v_detail);
  if v_outcome = 'unblocked' then
    insert into play.ledger (job, fence, verb) values ((v_detail ->> 'job')::bigint, 0, 'operator unblocked');
  end if;
  return v_outcome;
end $$;

-- A holder of a head finishes it with members of its batch. The members are locked first, so that
-- only those that this call finishes are recorded.
create function play.finish_batch(p_id bigint, p_fence bigint, p_members bigint[]) returns text language plpgsql as $$
declare
  v_before pawl.job[];
  v_said   record;
begin
  v_before := array(select j from pawl.job as j where j.id = any (p_members) and j.status <> 'processing' order by j.position for update skip locked);
  select f.outcome, f.members, f.detail into v_said from pawl_v1.lane_finish(array[p_id], array[p_fence], p_members) as f;
  perform play.tell(v_said.detail);
  if v_said.outcome = 'finished' then
    insert into play.ledger (job, fence, verb) values (p_id, p_fence, 'finish');
    perform play.effect(p_id);
  end if;
  insert into play.ledger (job, fence, verb)
  select b.id, b.fence + 1, v.verb
    from unnest(v_before) as b
    cross join unnest('{claim,finish}'::text[]) with ordinality as v (verb, n)
   where not exists (select from pawl.job as j where j.id = b.id)
   order by b.position, v.n;
  perform play.effect(b.id) from unnest(v_before) as b where not exists (select from pawl.job as j where j.id = b.id);
  return v_said.outcome || ' ' || v_said.members;
end $$;

create function play.frozen() returns setof bigint language sql as $$
  select distinct j.lane_id from pawl.job as j
   where j.status = 'waiting' and not exists (select from pawl.job as h where h.lane_id = j.lane_id and h.lane_head) $$;

-- Judges the lanes after the sessions have ended: sweeps, works until no job can be claimed, and
-- checks the order of all jobs.
create function play.judge_lanes() returns table (property text, what text) language plpgsql as $$
declare
  v_job record;
begin
  -- Rules without a CHECK constraint, because every insert would parse it.
  return query select 'p_head', 'job ' || j.id || ' is ' || j.status || ' with lane_head ' || j.lane_head from pawl.job as j
    where not case
           when j.lane_id is null then not j.lane_head and j.status <> 'waiting'
           when j.status in ('pending', 'processing', 'unknown') then j.lane_head
           when j.status = 'dead_letter' then true
           else not j.lane_head
         end;
  if not exists (select from pawl.lane) then
    return;
  end if;
  return query select 'p_told', 'lane ' || f.lane || ' is frozen, and nobody was told' from play.frozen() as f (lane)
    where f.lane not in (select t.lane from play.told as t);
  return query select 'p_head', 'lane ' || j.lane_id || ' has ' || count(*) || ' heads' from pawl.job as j
    where j.lane_head group by j.lane_id having count(*) > 1;
  perform pawl_v1.lane_sweep();
  return query select 'p_frozen', 'lane ' || f.lane || ' is frozen after a sweep' from play.frozen() as f (lane);
  loop
    for v_job in select j.id, j.fence from pawl.job as j where j.status = 'processing' order by j.id loop
      perform play.finish(v_job.id, v_job.fence);
    end loop;
    exit when play.claim(null, 500) = '';
  end loop;
  return query select 'p_frozen', 'job ' || j.id || ' is left ' || j.status from pawl.job as j
    where j.status in ('pending', 'processing')
       or j.status = 'waiting' and not exists (select from pawl.job as h where h.lane_id = j.lane_id and h.lane_head and h.status = 'dead_letter');
  return query select 'p_order', 'job ' || b.job || ' ran before job ' || a.job
    from play.place as a
    join play.place as b on b.lane = a.lane and b.position > a.position
    join (select l.job, min(l.n) as n from play.ledger as l where l.verb = 'claim' group by l.job) as first on first.job = b.job
   where not exists (
     select from play.ledger as l
      where l.job = a.job and l.n < first.n
        and (l.verb in ('finish', 'cancelled', 'operator cancelled', 'operator discarded', 'operator unblocked')
          or l.verb = 'dead_letter' and exists (select from pawl.lane as n where n.id = a.lane and n.policy <> 'block')));
end $$;

create function play.reset_lanes() returns void language sql as $$
  delete from play.place; delete from play.told; delete from pawl.lane; delete from pawl.audit;
  select setval('pawl.lane_id_seq', 1, false), setval('pawl.position_seq', 1, false) $$;
`

// judgeLanes is the part of judge for lanes.
func judgeLanes(ctx context.Context, conn *pgx.Conn) error {
	odd, err := collect(ctx, conn, "select o.property, o.what from play.judge_lanes() as o", func(row pgx.CollectableRow) (v violation, err error) {
		return v, row.Scan(&v.property, &v.what)
	})
	if err != nil || len(odd) == 0 {
		return err
	}
	return odd[0]
}

// The initial states of the lane scenes. Job 1 is the first of lane l.
const (
	workers   = "select pawl_v1.worker_register('one'), pawl_v1.worker_register('two');"
	laneOfTwo = workers + "select play.enqueue_lanes('{l}'); select play.enqueue_lanes('{l}');"
	laneHeld  = laneOfTwo + "select play.claim(1);"
	laneDead  = laneHeld + finalOne + ";"
	laneParks = workers + "select play.enqueue_lanes('{l}', 'park'); select play.enqueue_lanes('{l}'); select play.enqueue_lanes('{l}'); select play.claim(1);"
	laneSkips = workers + "select play.enqueue_lanes('{l}', 'skip'); select play.enqueue_lanes('{l}'); select play.enqueue_lanes('{l}'); select play.claim(1);"
	oneParked = laneParks + finalOne + "; select play.claim(1);" // 2 is held
	frozen    = laneOfTwo + enqueueLane + "; delete from pawl.job where id = 1; delete from play.place where job = 1; insert into play.told values (1);"
	laneIdle  = workers + "select play.enqueue_lanes('{l}'); select play.claim(1); select play.finish(1, 1);"
	twoLanes  = workers + "select play.enqueue_lanes('{a,b}'); select play.claim(1, 2);"

	// laneBatch has jobs 2 and 3 waiting behind job 1.
	laneBatch = laneHeld + enqueueLane + "; select count(*) from pawl_v1.lane_batch('{1}', '{1}');"

	finishBatch = "select play.finish_batch(1, 1, '{2,3}')"
	enqueueLane = "select play.enqueue_lanes('{l}')"
	promote     = "select p.outcome from pawl_v1.lane_promote(1) as p"
	sweepLanes  = "select s.promoted from pawl_v1.lane_sweep() as s"
	finalOne    = `select play.fail(1, 1, '{"final": true}')`
	purge       = "select p.purged from pawl_v1.lane_purge() as p"
	unblock     = "select play.unblock()"
)

func verbOn(verb, id string) string { return "select play.operate('" + verb + "', " + id + ")" }

// laneScenes are the concurrent pairs for lanes.
var laneScenes = []scene{
	{name: "lane: enqueue, enqueue", given: workers, sides: [][]string{{enqueueLane}, {enqueueLane}}},
	{name: "lane: enqueue, enqueue and claim", given: laneIdle, sides: [][]string{{enqueueLane}, {enqueueLane}, {claimOne}}},
	{name: "lane: enqueue aborted, enqueue", given: workers, sides: [][]string{{enqueueLane, rollback}, {enqueueLane}}},
	{name: "lane: enqueue, finish", given: laneHeld, sides: [][]string{{enqueueLane}, {finishOne}}},
	{name: "lane: enqueue, finish of the only one", given: workers + enqueueLane + ";" + claimOne + ";", sides: [][]string{{enqueueLane}, {finishOne}}},
	{name: "lane: enqueue aborted, finish", given: laneHeld, sides: [][]string{{enqueueLane, rollback}, {finishOne}}},
	{name: "lane: enqueue, enqueue, finish", given: laneHeld, sides: [][]string{{enqueueLane}, {enqueueLane}, {finishOne}}},
	{name: "lane: enqueue, finish and claim", given: laneHeld, sides: [][]string{{enqueueLane}, {finishOne, claimTwo}}, apart: true},
	{name: "lane: enqueue, finish and enqueue", given: laneHeld, sides: [][]string{{enqueueLane}, {finishOne, enqueueLane, claimTwo}}, apart: true},
	{name: "lane: enqueue, enqueue many behind it, enqueue", given: workers, sides: [][]string{
		{"select play.enqueue_lanes('{a}')"}, {"select play.enqueue_lanes('{a,l}')"}, {enqueueLane}}},
	{name: "lane: enqueue many, reversed", given: workers, sides: [][]string{{"select play.enqueue_lanes('{a,b}')"}, {"select play.enqueue_lanes('{b,a}')"}}},
	{name: "lane: enqueue many, reversed, behind another", given: workers + "select play.enqueue_lanes('{a,m,z}');", sides: [][]string{
		{"select play.enqueue_lanes('{m}')", rollback}, {"select play.enqueue_lanes('{a,m,z}')"}, {"select play.enqueue_lanes('{z,m,a}')"}}},
	{name: "lane: enqueue many, finish many", given: twoLanes, sides: [][]string{{"select play.enqueue_lanes('{a,b}')"}, {finishPair}}},
	{name: "lane: finish many, finish many in reverse", refusal: []string{"55P03"}, given: twoLanes, sides: [][]string{{finishPair}, {finishBack}}},
	{name: "lane: finish, zombie's finish", given: laneHeld + oneIsDead + "select play.sweep(); select play.claim(2);", sides: [][]string{{finishTwo}, {finishOne}}},
	{name: "lane: finish, lane sweep", given: laneHeld, sides: [][]string{{finishOne}, {sweepLanes}}},
	{name: "lane: finish aborted, lane sweep, enqueue", given: laneHeld, sides: [][]string{{finishOne, rollback}, {sweepLanes}, {enqueueLane}}},
	{name: "lane: promote, enqueue", given: frozen, sides: [][]string{{promote}, {enqueueLane}}},
	{name: "lane: promote, promote, claim", given: frozen, sides: [][]string{{promote}, {promote}, {claimOne}}},
	{name: "lane: promote, lane sweep", given: frozen, sides: [][]string{{promote}, {sweepLanes}}},
	{name: "lane: cancel, promote", given: frozen, refusal: []string{"55P03"}, sides: [][]string{{verbOn("cancel", "2")}, {promote}}},
	{name: "lane: cancel of the next, finish", given: laneHeld + enqueueLane + ";", sides: [][]string{{verbOn("cancel", "2")}, {finishOne}}},
	{name: "lane: cancel of the next aborted, finish", given: laneHeld + enqueueLane + ";", sides: [][]string{{verbOn("cancel", "2"), rollback}, {finishOne}}},
	{name: "lane: cancel, finish", given: laneHeld, sides: [][]string{{verbOn("cancel", "1")}, {finishOne}}},
	{name: "lane: cancel, enqueue", given: laneHeld, sides: [][]string{{verbOn("cancel", "1")}, {enqueueLane}}},
	{name: "lane: cancel by the handler, enqueue", given: laneHeld, sides: [][]string{{cancelOne}, {enqueueLane}}},
	{name: "lane: discard of the head, enqueue", given: laneOfTwo, sides: [][]string{{verbOn("discard", "1")}, {enqueueLane}}},
	{name: "lane: discard of the next, finish", given: laneHeld, sides: [][]string{{verbOn("discard", "2")}, {finishOne}}},
	{name: "lane: cancel of a pending head, enqueue", given: laneOfTwo, sides: [][]string{{verbOn("cancel", "1")}, {enqueueLane}}},
	{name: "lane: discard of a blocking one, enqueue", given: laneDead, sides: [][]string{{verbOn("discard", "1")}, {enqueueLane}}},
	{name: "lane: retry of a cancelled one, finish", given: laneHeld + enqueueLane + ";" + verbOn("cancel", "2") + ";", sides: [][]string{{verbOn("retry", "2")}, {finishOne}}},
	{name: "lane: claim by id of the next, finish", given: laneHeld + enqueueLane + ";", sides: [][]string{{"select play.claim_id(2, 2)"}, {finishOne}}},
	{name: "lane: fail, enqueue", given: laneHeld, sides: [][]string{{failOne}, {enqueueLane}}},
	{name: "lane: release, enqueue", given: laneHeld, sides: [][]string{{"select play.release(1, 1)"}, {enqueueLane}}},
	{name: "lane: unblock, cancel of the next", given: laneDead, sides: [][]string{{unblock}, {verbOn("cancel", "2")}}},
	{name: "lane: policy, unblock", given: laneDead, sides: [][]string{{"select p.outcome from pawl_v1.lane_policy('q', 'l', 'skip', 'somebody', 'a reason') as p"}, {unblock}}},
	{name: "lane: dead letter, enqueue", given: laneHeld, sides: [][]string{{finalOne}, {enqueueLane}}},
	{name: "lane: parked, enqueue", given: laneParks, sides: [][]string{{finalOne}, {enqueueLane}}},
	{name: "lane: retry of parked, finish", given: oneParked, sides: [][]string{{verbOn("retry", "1")}, {"select play.finish(2, 1)"}}},
	{name: "lane: retry of parked, finish, enqueue", given: oneParked, sides: [][]string{{verbOn("retry", "1")}, {"select play.finish(2, 1)"}, {enqueueLane}}},
	{name: "lane: retry of parked, discard of it", given: oneParked, sides: [][]string{{verbOn("retry", "1")}, {verbOn("discard", "1")}}},
	{name: "lane: retry of skipped, finish", given: laneSkips + finalOne + "; select play.claim(1);", sides: [][]string{{verbOn("retry", "1")}, {"select play.finish(2, 1)"}}},
	{name: "lane: retry of blocking, unblock", given: laneDead, sides: [][]string{{verbOn("retry", "1")}, {unblock}}},
	{name: "lane: unblock, enqueue", given: laneDead, sides: [][]string{{unblock}, {enqueueLane}}},
	{name: "lane: unblock, unblock", given: laneDead, sides: [][]string{{unblock}, {unblock}}},
	{name: "lane: unblock, discard", given: laneDead, sides: [][]string{{unblock}, {verbOn("discard", "1")}}},
	{name: "lane: policy, dead letter", given: laneHeld, sides: [][]string{{"select p.outcome from pawl_v1.lane_policy('q', 'l', 'block', 'somebody', 'a reason') as p"}, {finalOne}}},
	{name: "lane: sweep, finish, enqueue", given: laneHeld + oneIsDead, sides: [][]string{{sweepEverybody}, {finishOne}, {enqueueLane}}},
	{name: "lane: sweep to the dead letters, enqueue", given: laneParks + oneIsDead + "update pawl.job set crashes = 3 where id = 1;", sides: [][]string{{sweepEverybody}, {enqueueLane}}},
	{name: "lane: leave, enqueue", given: laneHeld, sides: [][]string{{"select play.leave(1)"}, {enqueueLane}}},
	{name: "lane: purge, enqueue", given: laneIdle, sides: [][]string{{purge}, {enqueueLane}}},
	{name: "lane: purge, enqueue aborted, enqueue", given: laneIdle, sides: [][]string{{purge}, {enqueueLane, rollback}, {enqueueLane}}},
	{name: "lane: purge, finish", given: workers + enqueueLane + ";" + claimOne + ";", sides: [][]string{{purge}, {finishOne}}},
}

// batchScenes are the concurrent pairs for batches.
var batchScenes = []scene{
	{name: "batch: finish, enqueue", given: laneBatch, sides: [][]string{{finishBatch}, {enqueueLane}}},
	{name: "batch: finish aborted, enqueue", given: laneBatch, sides: [][]string{{finishBatch, rollback}, {enqueueLane}}},
	{name: "batch: finish of a part, enqueue", given: laneBatch, sides: [][]string{{"select play.finish_batch(1, 1, '{2}')"}, {enqueueLane}}},
	{name: "batch: finish, cancel of a member", given: laneBatch, sides: [][]string{{finishBatch}, {verbOn("cancel", "2")}}},
	{name: "batch: finish, cancel of a member aborted", given: laneBatch, sides: [][]string{{finishBatch}, {verbOn("cancel", "2"), rollback}}},
	{name: "batch: finish, discard of the last member", given: laneBatch, sides: [][]string{{finishBatch}, {verbOn("discard", "3")}}},
	{name: "batch: finish, cancel of the head", given: laneBatch, sides: [][]string{{finishBatch}, {verbOn("cancel", "1")}}},
	{name: "batch: finish, claim by id of a member", given: laneBatch, sides: [][]string{{finishBatch}, {"select play.claim_id(2, 2)"}}},
	{name: "batch: finish, sweep, enqueue", given: laneBatch + oneIsDead, sides: [][]string{{finishBatch}, {sweepEverybody}, {enqueueLane}}},
	{name: "batch: finish, zombie's finish", given: laneBatch + oneIsDead + "select play.sweep(); select play.claim(2);", sides: [][]string{{finishTwo}, {finishBatch}}},
	{name: "batch: finish, leave", given: laneBatch, sides: [][]string{{finishBatch}, {"select play.leave(1)"}}},
}

var runMutants = []mutant{
	{name: "a batch's members end without their head", property: "p_order", scene: "batch: finish, zombie's finish", edits: []edit{
		{"lane_finish", "           array_agg(h.lane_id) filter (where h.held),\n           array_agg(h.lane_id) filter (where h.held and h.lane_head),\n",
			"           array_agg(h.lane_id),\n           array_agg(h.lane_id),\n"},
		{"lane_finish", "  if v_held is not null then", "  if v_locked <> '{}' then"}}},
	{name: "a batch's head ends without its fence", property: "p_term", scene: "batch: finish, zombie's finish", edits: []edit{
		{"lane_finish", " and (j.id, j.fence) in (select g.id, g.fence from unnest(p_ids, p_fences) as g (id, fence)) as held", " as held"}}},
	{name: "a batch's head ends when it was taken back", property: "p_held", scene: "batch: finish, sweep, enqueue", edits: []edit{
		{"lane_finish", "               j.status = 'processing' and (j.id", "               (j.id"}}},
	{name: "a batch goes on behind a locked member", property: "p_order", scene: "batch: finish, cancel of a member aborted", edits: []edit{
		{"_batch_members", "where n.whole", "where n.id = any (v_locked)"}}},
	{name: "a batch ends members that do not wait", property: "p_term", scene: "batch: finish, cancel of a member", edits: []edit{
		{"_batch_members", "\n         and j.status = 'waiting'\n         and j.lane_id = any (p_lanes)\n       order", "\n         and j.lane_id = any (p_lanes)\n       order"},
		{"_batch_members", "\n         and j.status = 'waiting'\n         and j.lane_id = any (p_lanes)) as n", "\n         and j.lane_id = any (p_lanes)) as n"}}},
	{name: "a batch's end promotes no job", property: "p_told", scene: "batch: finish, enqueue", edits: []edit{{"lane_finish", "when 1 then v_freed", "when 1 then '{}'::jsonb"}}},
}

func init() { scenes = append(scenes, append(laneScenes, batchScenes...)...) }
