//go:build proof

package schematest_test

// exchangePlay is an exchange. A job that it does not return as stale or locked has ended, and its
// effect was made before.
const exchangePlay = `
create function play.exchange(p_ids bigint[], p_fences bigint[], p_worker bigint, p_limit int default 1) returns text language sql as $$
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
	exchangeOne  = "select play.exchange('{1}', '{1}', 1)"
	exchangeTwo  = "select play.exchange('{1}', '{2}', 2)"
	exchangePair = "select play.exchange('{2,1}', '{1,1}', 1)"
)

var exchangeScenes = []scene{
	{name: "exchange, exchange", given: heldByOne, sides: [][]string{{exchangeOne}, {exchangeOne}}},
	{name: "exchange, exchange aborted", given: heldByOne, sides: [][]string{{exchangeOne}, {exchangeOne, rollback}}},
	{name: "exchange, zombie's exchange", given: heldByTwo, sides: [][]string{{exchangeTwo}, {exchangeOne}}},
	{name: "exchange, finish", given: heldByOne, sides: [][]string{{exchangeOne}, {finishOne}}},
	{name: "exchange, fail", given: heldByOne, sides: [][]string{{exchangeOne}, {failOne}}},
	{name: "exchange, release", given: heldByOne, sides: [][]string{{exchangeOne}, {"select play.release(1, 1)"}}},
	{name: "exchange, claim of the other", given: pair + "select play.claim(1, 1);", sides: [][]string{{exchangeOne}, {claimTwo}}},
	{name: "exchange, exchange for the other", given: pair + "select play.claim(1, 1);", sides: [][]string{{exchangeOne}, {"select play.exchange('{}', '{}', 2)"}}},
	{name: "exchange, sweep", given: overdue, sides: [][]string{{exchangeOne}, {sweepEverybody}}},
	{name: "exchange of many, sweep", given: pairIsDue, sides: [][]string{{exchangePair}, {sweepEverybody}, {finishOne}}},
	{name: "exchange, sweep and claim", given: overdue, sides: [][]string{{exchangeOne}, {sweepEverybody, claimTwo}}, apart: true},
	{name: "exchange, leave", given: heldPair, sides: [][]string{{exchangePair}, {"select play.leave(1)"}}},
	{name: "exchange, heartbeat", given: heldPair, sides: [][]string{{exchangePair}, {heartbeat}}},
	{name: "exchange, operator cancels", given: heldByOne, sides: [][]string{{exchangeOne}, {operatorCancels}}},
	{name: "exchange, exchange in reverse", given: heldPair, sides: [][]string{{exchangePair}, {"select play.exchange('{1,2}', '{1,1}', 1)"}}},
	{name: "lane: exchange, enqueue", given: laneHeld, sides: [][]string{{exchangeOne}, {enqueueLane}}},
	{name: "lane: exchange aborted, enqueue", given: laneHeld, sides: [][]string{{exchangeOne, rollback}, {enqueueLane}}},
	{name: "lane: exchange, claim", given: laneHeld, sides: [][]string{{exchangeOne}, {claimTwo}}},
}

var exchangeMutants = []mutant{
	{name: "an exchange conceals what did not end", property: "p_once", scene: "exchange, zombie's exchange", edits: []edit{{"job_exchange",
		"array_agg(f.id) filter (where f.outcome <> 'finished')", "array_agg(f.id) filter (where false)"}}},
	{name: "an exchange tells of no lane", property: "p_told", scene: "lane: exchange, enqueue", edits: []edit{{"job_exchange", "coalesce(v_freed, '{}') || ", ""}}},
}
