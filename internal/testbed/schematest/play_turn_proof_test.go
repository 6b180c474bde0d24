//go:build proof

package schematest_test

// turnPlay is a turn. A job that it does not return as stale or locked has ended, and its effect
// was made before.
const turnPlay = `
create function play.turn(p_ids bigint[], p_fences bigint[], p_worker bigint, p_limit int default 1) returns text language sql as $$
  with c as materialized (select * from pawl_v1.job_exchange(p_ids, p_fences, 'q', p_worker, p_limit)),
       g as (select g.id, g.fence from unnest(p_ids, p_fences) as g (id, fence)
              where exists (select from c where c.outcome = 'ended') and not exists (select from c where c.id = g.id and c.outcome in ('stale', 'locked'))),
       l as (insert into play.ledger (job, fence, verb)
             select x.id, x.fence, x.verb
               from (select g.id, g.fence, 'finish' as verb from g union all select c.id, c.fence, 'claim' from c where c.outcome = 'claimed') as x
              order by x.verb desc),
       e as (insert into play.effect (what) select 'job ' || g.id from g)
  select string_agg(c.outcome || coalesce(':' || c.id, '') || coalesce(play.tell(c.detail)::text, ''), ' ' order by c.outcome, c.id) from c $$;
`

const (
	turnOne  = "select play.turn('{1}', '{1}', 1)"
	turnTwo  = "select play.turn('{1}', '{2}', 2)"
	turnPair = "select play.turn('{2,1}', '{1,1}', 1)"
)

var turnScenes = []scene{
	{name: "turn, turn", given: heldByOne, sides: [][]string{{turnOne}, {turnOne}}},
	{name: "turn, turn aborted", given: heldByOne, sides: [][]string{{turnOne}, {turnOne, rollback}}},
	{name: "turn, zombie's turn", given: heldByTwo, sides: [][]string{{turnTwo}, {turnOne}}},
	{name: "turn, finish", given: heldByOne, sides: [][]string{{turnOne}, {finishOne}}},
	{name: "turn, fail", given: heldByOne, sides: [][]string{{turnOne}, {failOne}}},
	{name: "turn, release", given: heldByOne, sides: [][]string{{turnOne}, {"select play.release(1, 1)"}}},
	{name: "turn, claim of the other", given: pair + "select play.claim(1, 1);", sides: [][]string{{turnOne}, {claimTwo}}},
	{name: "turn, turn for the other", given: pair + "select play.claim(1, 1);", sides: [][]string{{turnOne}, {"select play.turn('{}', '{}', 2)"}}},
	{name: "turn, sweep", given: overdue, sides: [][]string{{turnOne}, {sweepEverybody}}},
	{name: "turn of many, sweep", given: pairIsDue, sides: [][]string{{turnPair}, {sweepEverybody}, {finishOne}}},
	{name: "turn, sweep and claim", given: overdue, sides: [][]string{{turnOne}, {sweepEverybody, claimTwo}}, apart: true},
	{name: "turn, leave", given: heldPair, sides: [][]string{{turnPair}, {"select play.leave(1)"}}},
	{name: "turn, heartbeat", given: heldPair, sides: [][]string{{turnPair}, {heartbeat}}},
	{name: "turn, operator cancels", given: heldByOne, sides: [][]string{{turnOne}, {operatorCancels}}},
	{name: "turn, turn in reverse", given: heldPair, sides: [][]string{{turnPair}, {"select play.turn('{1,2}', '{1,1}', 1)"}}},
	{name: "lane: turn, enqueue", given: laneHeld, sides: [][]string{{turnOne}, {enqueueLane}}},
	{name: "lane: turn aborted, enqueue", given: laneHeld, sides: [][]string{{turnOne, rollback}, {enqueueLane}}},
	{name: "lane: turn, claim", given: laneHeld, sides: [][]string{{turnOne}, {claimTwo}}},
}

var turnMutants = []mutant{
	{name: "a turn conceals what did not end", property: "p_once", scene: "turn, zombie's turn", edits: []edit{{"job_exchange",
		"array_agg(f.id) filter (where f.outcome <> 'finished')", "array_agg(f.id) filter (where false)"}}},
	{name: "a turn tells of no lane", property: "p_told", scene: "lane: turn, enqueue", edits: []edit{{"job_exchange", "coalesce(v_freed, '{}') || ", ""}}},
}
