//go:build proof

package schematest_test

// openPlay ends a job first, as a handler's transaction does: job_open, the effect, job_close. The
// result of job_open stays with the transaction.
const openPlay = `
create function play.open(p_id bigint, p_fence bigint, p_keep boolean default false) returns text language sql as $$
  with c as (select * from pawl_v1.job_open(p_id, p_fence, null, p_keep)),
       l as (insert into play.ledger (job, fence, verb) select p_id, p_fence, case c.outcome when 'ended' then 'finish' else 'hold' end from c)
  select c.outcome || left(set_config('play.opened', to_jsonb(c)::text, true), 0) from c $$;

create function play.close(p_id bigint, p_fence bigint) returns text language sql as $$
  select play.effect(p_id);
  with o as (select current_setting('play.opened')::jsonb as o),
       c as (select x.outcome, x.detail
               from o, pawl_v1.job_close(p_id, p_fence, o ->> 'outcome', o ->> 'xact', (o ->> 'lane')::bigint) as x),
       l as (insert into play.ledger (job, fence, verb) select p_id, p_fence, 'finish' from o, c where o ->> 'outcome' = 'kept')
  select c.outcome || coalesce(play.tell(c.detail)::text, '') from c $$;
`

var (
	openOne = []string{"select play.open(1, 1)", "select play.close(1, 1)"}
	openTwo = []string{"select play.open(1, 2)", "select play.close(1, 2)"}
	keepOne = []string{"select play.open(1, 1, true)", "select play.close(1, 1)"}
	undone  = []string{"select play.open(1, 1)", "select play.close(1, 1)", rollback}
)

var openScenes = []scene{
	{name: "open, open", given: heldByOne, sides: [][]string{openOne, openOne}},
	{name: "open, open aborted", given: heldByOne, sides: [][]string{openOne, undone}},
	{name: "open, zombie's open", given: heldByTwo, sides: [][]string{openTwo, openOne}},
	{name: "open, finish", given: heldByOne, sides: [][]string{openOne, {finishOne}}},
	{name: "open, hold and finish", given: heldByOne, sides: [][]string{openOne, {"select play.hold(1, 1)", finishOne}}},
	{name: "open aborted, fail", given: heldByOne, sides: [][]string{undone, {failOne}}},
	{name: "open, release", given: heldByOne, sides: [][]string{openOne, {"select play.release(1, 1)"}}},
	{name: "open, sweep", given: overdue, sides: [][]string{openOne, {sweepEverybody}}},
	{name: "open, sweep and claim", given: overdue, sides: [][]string{openOne, {sweepEverybody, claimTwo}}, apart: true},
	{name: "open, operator cancels", given: heldByOne, sides: [][]string{openOne, {operatorCancels}}},
	{name: "open and keep, open", given: heldByOne, sides: [][]string{keepOne, openOne}},
	{name: "open and keep, sweep", given: overdue, sides: [][]string{keepOne, {sweepEverybody}}},
	{name: "open and keep, operator cancels", given: heldByOne, sides: [][]string{keepOne, {operatorCancels}}},
	{name: "lane: open, enqueue", given: laneHeld, sides: [][]string{openOne, {enqueueLane}}},
	{name: "lane: open aborted, enqueue", given: laneHeld, sides: [][]string{undone, {enqueueLane}}},
}

var openMutants = []mutant{
	{name: "open without fence", property: "p_fence", scene: "open, zombie's open", edits: []edit{{"job_open", "\n                  and l.fence = p_fence\n", "\n"}}},
	{name: "open without state", property: "p_held", scene: "open, sweep", edits: []edit{{"job_open", "\n                  and l.status = 'processing'", ""}}},
	{name: "close promotes no job", property: "p_told", scene: "lane: open, enqueue", edits: []edit{{"job_close", "pawl_v1._lanes_free(array[p_lane])", "'{}'::jsonb"}}},
	{name: "close does not end what was kept", property: "p_term", scene: "open and keep, sweep", edits: []edit{{"job_close",
		"select f.outcome, f.detail from pawl_v1.job_finish(p_id, p_fence) as f", "select 'finished', '{}'::jsonb"}}},
}
