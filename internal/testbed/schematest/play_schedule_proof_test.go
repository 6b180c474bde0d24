//go:build proof

package schematest_test

// playSchedules is play's part for schedules. It has a keeper that read the schedule before the
// others acted ("seen") and one that reads it now. Each note is written under the lock of the
// schedule's row.
const playSchedules = `
create table play.note (n bigint generated always as identity primary key, verb text not null, at timestamptz);
create table play.seen (fence bigint not null, next_at timestamptz not null);

create function play.put(p_first text default '2026-01-01 00:00', p_cron text default '0 * * * *', p_name text default 's') returns text language plpgsql as $$
declare
  v_said text;
begin
  select p.outcome into v_said from pawl_v1.schedule_put(p_name, 'q', 'k', '', jsonb_build_object('cron', p_cron, 'first_at', p_first)) as p;
  insert into play.note (verb) values ('put');
  return v_said;
end $$;

-- The initial state: an hourly schedule that is due, and a keeper that has read it.
create function play.due() returns void language sql as $$
  select play.put();
  delete from play.note;
  insert into play.seen (fence, next_at) select s.fence, s.next_at from pawl.schedule as s $$;

create function play.tick(p_verb text, p_fence bigint, p_at timestamptz) returns text language plpgsql as $$
declare
  v_said text;
begin
  select t.outcome into v_said from pawl_v1.schedule_tick('s', p_fence, array[p_at], p_at + interval '1 hour') as t;
  if v_said = 'ticked' then
    insert into play.note (verb, at) values (p_verb, p_at);
  end if;
  return v_said;
end $$;

create function play.tick_seen() returns text language sql as $$
  select play.tick('seen', s.fence, s.next_at) from play.seen as s $$;

create function play.tick_now() returns text language sql as $$
  select play.tick('tick', s.fence, s.next_at) from pawl_v1.schedules as s where s.name = 's' and not s.paused $$;

create function play.operate_schedule(p_verb text) returns text language plpgsql as $$
declare
  v_said text;
begin
  execute format('select o.outcome from pawl_v1.schedule_%s(''s'', ''ann'', ''a reason'') as o', p_verb) into v_said;
  if v_said not in ('absent', 'unchanged') then
    insert into play.note (verb) values (p_verb);
  end if;
  return v_said;
end $$;

create function play.reset_schedules() returns void language sql as $$
  delete from pawl.schedule; delete from play.note; delete from play.seen $$;

-- Judges schedules after the sessions have ended.
create view play.odd_schedules as
select 'p_once' as property, 'the tick of ' || n.at || ' was made ' || count(*) || ' times' as what
  from play.note as n where n.at is not null group by n.at having count(*) > 1
union all
select 'p_once', 'the tick of ' || (j.headers ->> 'pawl-tick') || ' has ' || count(*) || ' jobs'
  from pawl.job as j where j.headers ? 'pawl-tick' group by j.headers ->> 'pawl-tick' having count(*) > 1
union all
select 'p_fence', 'what was seen first was obeyed after ' || b.verb
  from play.note as n join play.note as b on b.n < n.n where n.verb = 'seen' and b.verb <> 'run_now'
union all
select 'p_done', 'the tick of ' || n.at || ' has no job'
  from play.note as n
 where n.at is not null
   and not exists (select from pawl.job as j where (j.headers ->> 'pawl-tick')::timestamptz = n.at)
union all
select 'p_loss', 'the tick of ' || s.next_at || ' was due, has no job and is not due any more'
  from play.seen as s
 where not exists (select from pawl.job as j where (j.headers ->> 'pawl-tick')::timestamptz = s.next_at)
   and not exists (select from play.note as n where n.verb in ('delete', 'resume'))
   and not exists (select from pawl.schedule as p where p.next_at = s.next_at);
`

const (
	scheduleDue = "select play.due();"
	tickSeen    = "select play.tick_seen()"
	tickNow     = "select play.tick_now()"
	putSame     = "select play.put()"
	putOther    = "select play.put('2030-01-01 00:00', '30 * * * *')"
)

func onSchedule(verb string) string { return "select play.operate_schedule('" + verb + "')" }

// scheduleScenes are concurrent actions of keepers, programs and operators on one schedule.
var scheduleScenes = []scene{
	{name: "schedule: tick, tick", given: scheduleDue, sides: [][]string{{tickSeen}, {tickSeen}}},
	{name: "schedule: tick aborted, tick", given: scheduleDue, sides: [][]string{{tickSeen, rollback}, {tickSeen}}},
	{name: "schedule: tick, tick, tick", given: scheduleDue, sides: [][]string{{tickSeen}, {tickSeen}, {tickNow}}},
	{name: "schedule: tick, the next tick", given: scheduleDue, sides: [][]string{{tickSeen}, {tickNow, tickNow}}},
	{name: "schedule: tick, pause", given: scheduleDue, sides: [][]string{{tickSeen}, {onSchedule("pause")}}},
	{name: "schedule: tick, pause aborted", given: scheduleDue, sides: [][]string{{tickSeen}, {onSchedule("pause"), rollback}}},
	{name: "schedule: tick, pause and resume", given: scheduleDue, sides: [][]string{{tickSeen}, {onSchedule("pause"), onSchedule("resume")}}},
	{name: "schedule: tick, tick, pause", given: scheduleDue, sides: [][]string{{tickSeen}, {tickSeen}, {onSchedule("pause")}}},
	{name: "schedule: tick, delete", given: scheduleDue, sides: [][]string{{tickSeen}, {onSchedule("delete")}}},
	{name: "schedule: tick, delete and put", given: scheduleDue, sides: [][]string{{tickSeen}, {onSchedule("delete"), putSame}}},
	{name: "schedule: tick, put the same", given: scheduleDue, sides: [][]string{{tickNow}, {putSame}}},
	{name: "schedule: tick, put another plan", given: scheduleDue, sides: [][]string{{tickSeen}, {putOther}}},
	{name: "schedule: tick, run now", given: scheduleDue, sides: [][]string{{tickSeen}, {onSchedule("run_now")}}},
	{name: "schedule: put, put", sides: [][]string{{putSame}, {putSame}}},
	{name: "schedule: put aborted, put another", sides: [][]string{{putSame, rollback}, {putOther}}},
	{name: "schedule: pause, resume", given: scheduleDue + onSchedule("pause") + ";", sides: [][]string{{onSchedule("resume")}, {onSchedule("pause")}}},
	{name: "schedule: delete, delete", given: scheduleDue, sides: [][]string{{onSchedule("delete")}, {onSchedule("delete")}}},
}

func init() { scenes = append(scenes, scheduleScenes...) }

// scheduleMutants are defects of schedules that the scenes must find.
var scheduleMutants = []mutant{
	{name: "a tick without fence", property: "p_once", scene: "schedule: tick, tick", edits: []edit{{"schedule_tick", "\n     and s.fence = p_fence;", ";"}}},
	{name: "a tick leaves the fence", property: "p_answer", scene: "schedule: tick, tick", edits: []edit{
		{"schedule_tick", "set fence = nextval('pawl.fence_seq'),\n         next_at", "set next_at"}}},
	{name: "a pause leaves the fence", property: "p_fence", scene: "schedule: tick, pause", edits: []edit{
		{"schedule_pause", "set fence = nextval('pawl.fence_seq'),\n         paused", "set paused"}}},
	{name: "a new life with an old fence", property: "p_fence", scene: "schedule: tick, delete and put", edits: []edit{
		{"schedule_put", "as s (name, next_at", "as s (fence, name, next_at"}, {"schedule_put", "values (v_new.name, v_new.next_at", "values (1, v_new.name, v_new.next_at"}}},
	{name: "another plan forgets what is due", property: "p_loss", scene: "schedule: tick, put another plan", edits: []edit{
		{"schedule_put", "\n     and (v_before.paused or coalesce(v_before.next_at > v_now, true))", ""}}},
	{name: "a tick that enqueues nothing", property: "p_done", scene: "schedule: tick, tick", edits: []edit{
		{"schedule_tick", "from unnest(v_ticks) with ordinality", "from unnest('{}'::timestamptz[]) with ordinality"}}},
}
