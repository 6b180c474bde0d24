//go:build proof

package schematest_test

// ownPlay has the application's verbs on its own jobs. They count like an operator's: the job gets
// a new fence, and a cancelled job has ended.
const ownPlay = `
create function play.own(p_call text, p_id bigint default 1) returns text language plpgsql as $$
declare
  v_outcome text;
  v_detail  jsonb;
begin
  execute 'select o.outcome, o.detail from pawl_v1.' || p_call || ' as o'
     into v_outcome, v_detail;
  perform play.tell(v_detail);
  if v_outcome in ('cancelled', 'rescheduled') then
    insert into play.ledger (job, fence, verb)
    select j.id, j.fence, case v_outcome when 'cancelled' then 'operator cancelled' else 'operator retried' end
      from pawl.job as j where j.id = p_id;
  end if;
  return v_outcome;
end $$;
`

const (
	ownCancel     = "select play.own('job_cancel_own(1)')"
	ownReschedule = "select play.own('job_reschedule(1, 0)')"
)

var ownScenes = []scene{
	{name: "own cancel, claim", given: pending, sides: [][]string{{ownCancel}, {claimOne}}},
	{name: "own cancel aborted, claim", given: pending, sides: [][]string{{ownCancel, rollback}, {claimOne, finishOne}}},
	{name: "own cancel, finish", given: heldByOne, sides: [][]string{{ownCancel}, {finishOne}}},
	{name: "own cancel, fail", given: heldByOne, sides: [][]string{{ownCancel}, {failOne}}},
	{name: "own cancel, sweep", given: overdue, sides: [][]string{{ownCancel}, {sweepEverybody}}},
	{name: "own cancel, operator cancels", given: heldByOne, sides: [][]string{{ownCancel}, {operatorCancels}}},
	{name: "own cancel, reschedule", given: pending, sides: [][]string{{ownCancel}, {ownReschedule}}},
	{name: "reschedule, claim", given: pending, sides: [][]string{{ownReschedule}, {claimOne, finishOne}}},
	{name: "reschedule, finish", given: heldByOne, sides: [][]string{{ownReschedule}, {finishOne}}},
	{name: "reschedule, sweep", given: overdue, sides: [][]string{{ownReschedule}, {sweepEverybody}}},
	{name: "lane: own cancel, enqueue", given: laneHeld, sides: [][]string{{ownCancel}, {enqueueLane}}},
}

var ownMutants = []mutant{
	{name: "own cancel leaves its lane standing", property: "p_told", scene: "lane: own cancel, enqueue", edits: []edit{{"job_cancel_own", "pawl_v1._lane_freed(v_before.lane_id, v_before.queue)", "'{}'::jsonb"}}},
	{name: "reschedule of what runs", property: "p_term", scene: "reschedule, finish", edits: []edit{{"job_reschedule", "'{pending,waiting}'", "'{pending,waiting,processing}'"}}},
}
