-- Lanes: jobs of one lane of a queue run one at a time, in the order in which they were enqueued.
--
--   enqueue ──▶ waiting ── promoted ──▶ pending ⇄ processing ──▶ finished: the next is promoted
--      │                                   ▲          └──▶ dead_letter: policy block: it keeps its turn, the lane stands
--      └── nothing ahead of it ────────────┘                            policy park, skip: parked, the next is promoted
--
-- Three rules, checked by docs/internals/model:
--   1. The row that had the turn goes first (deleted, or lane_head = false); only then the lane's row is asked for, and without
--      waiting: a transaction that has enqueued into the lane and stays open must not hold up who finishes a job.
--   2. Whoever puts a job into a lane, or promotes one, has updated the lane's row before it looks. Never a lock alone: with
--      an old snapshot (REPEATABLE READ) it must be told 40001, or it waits behind a job that is gone.
--   3. A lane that had to be skipped is named in the answer. Whoever got it calls lane_promote after the commit; if they die
--      first, lane_sweep finds the lane.

-- Whether anything of a lane is ahead of a newcomer. The caller has updated the lane's row, in an earlier statement.
create or replace function pawl_v1._lane_is_open(p_lane bigint)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return exists (select from pawl.job as j where j.lane_id = p_lane and j.lane_head)
      or exists (select from pawl.job as j where j.lane_id = p_lane and j.status = 'waiting');
end
$$;

-- What a claim says of a job's lane.
create or replace function pawl_v1._lane_of(p_lane bigint, p_position bigint)
returns jsonb
language sql
stable
return (select jsonb_build_object('lane', l.name, 'position', p_position) from pawl.lane as l where l.id = p_lane);

create or replace function pawl_v1._refuse_lane_policy(p_policy text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'a lane''s policy is block, park or skip, not %', coalesce(p_policy, 'null')
    using errcode = 'P4004';
end
$$;

create or replace function pawl_v1._check_lane_policy(p_policy text)
returns void
language sql
immutable
return case when p_policy in ('block', 'park', 'skip') then null else pawl_v1._refuse_lane_policy(p_policy) end;

-- Locks the lanes of a call, in the order of their names, updates their rows and returns their ids; null where there is no
-- name. Waits for whoever has one of them open.
create or replace function pawl_v1._lanes_enter(p_queues text[], p_names text[], p_options jsonb)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_policy text := coalesce(p_options ->> 'lane_policy', 'block');
  v_ids    bigint[];
  v_lost   boolean;
begin
  perform pawl_v1._check_lane_policy(v_policy), pawl_v1._check_scope('queue', r.queue), pawl_v1._check_scope('lane', r.name)
     from unnest(p_queues, p_names) as r (queue, name)
    where r.name is not null;
  for v_try in 1..3 loop
    insert into pawl.lane as l (queue, name, policy)
    select distinct r.queue collate "C", r.name collate "C", v_policy
      from unnest(p_queues, p_names) as r (queue, name)
     where r.name is not null
       and not exists (select from pawl.lane as l where l.queue = r.queue and l.name = r.name)
     order by 1, 2
    on conflict do nothing;

    perform
       from pawl.lane as l
      where (l.queue, l.name) in (select r.queue, r.name from unnest(p_queues, p_names) as r (queue, name) where r.name is not null)
      order by l.queue, l.name
        for no key update;
    update pawl.lane as l
       set ver = l.ver + 1
     where (l.queue, l.name) in (select r.queue, r.name from unnest(p_queues, p_names) as r (queue, name) where r.name is not null);

    select array_agg(l.id order by r.n), coalesce(bool_or(r.name is not null and l.id is null), false)
      into v_ids, v_lost
      from unnest(p_queues, p_names) with ordinality as r (queue, name, n)
      left join pawl.lane as l on l.queue = r.queue and l.name = r.name;
    if not v_lost then
      return v_ids;
    end if;
  end loop;
  raise exception 'some lanes keep appearing and disappearing'
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- Promotes what waits first in each of some lanes that have no head. The caller has updated the lanes' rows, in an earlier
-- statement. A job whose row is locked, by an operator or a claim by id, is not waited for; nobody is promoted in its place.
-- stuck: lanes in which somebody waits and nobody was promoted.
create or replace function pawl_v1._lanes_advance(p_lanes bigint[], out promoted int, out stuck bigint[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_next  bigint[]; -- who waits first in each
  v_lanes bigint[]; -- of v_next
  v_freed bigint[];
begin
  select array_agg(n.id), array_agg(l.id)
    into v_next, v_lanes
    from unnest(p_lanes) as l (id)
   cross join lateral (
          select j.id
            from pawl.job as j
           where j.lane_id = l.id
             and j.status = 'waiting'
             and not exists (select from pawl.job as h where h.lane_id = l.id and h.lane_head)
           order by j.position
           limit 1) as n;
  promoted := 0;
  stuck := '{}';
  if v_next is null then
    return;
  end if;
  with locked as (
    select j.id, j.status
      from pawl.job as j
     where j.id = any (array(select unnest(v_next))) -- see job_claim
     order by j.id
       for update skip locked
  ), freed as (
    update pawl.job as j
       set status = 'pending',
           lane_head = true,
           available_at = greatest(j.available_at, clock_timestamp())
     where j.id = any (array(select k.id from locked as k where k.status = 'waiting'))
    returning j.lane_id
  )
  select array_agg(f.lane_id)
    into v_freed
    from freed as f;
  promoted := coalesce(cardinality(v_freed), 0);
  if promoted < cardinality(v_next) then
    stuck := array(select s.id from unnest(v_lanes) as s (id) where s.id <> all (coalesce(v_freed, '{}')));
  end if;
end
$$;

-- After the turn of these lanes' heads has ended, in this transaction: promotes their successors. It never waits.
-- detail: promoted (how many may be claimed now), skipped (the ids of lanes that others have locked; call lane_promote for
-- each after your commit).
create or replace function pawl_v1._lanes_free(p_lanes bigint[])
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked   bigint[];
  v_advanced record;
  v_skipped  bigint[];
begin
  v_locked := array(
    select l.id
      from pawl.lane as l
     where l.id = any (p_lanes)
     order by l.id
       for no key update skip locked);
  update pawl.lane as l
     set ver = l.ver + 1
   where l.id = any (v_locked);
  select a.promoted, a.stuck
    into v_advanced
    from pawl_v1._lanes_advance(v_locked) as a;
  v_skipped := array(
    select distinct s.id
      from unnest(p_lanes) as s (id)
     where s.id <> all (v_locked)
        or s.id = any (v_advanced.stuck)
     order by s.id);
  return case when v_advanced.promoted > 0 then jsonb_build_object('promoted', v_advanced.promoted) else '{}' end
      || case when cardinality(v_skipped) > 0 then jsonb_build_object('skipped', to_jsonb(v_skipped)) else '{}' end;
end
$$;

-- After the job that had the turn of a lane was taken out of it, by a call that no worker makes, in this transaction: as _lanes_free, and wakes a
-- worker for the next. A worker that ends a turn claims the next job itself, so nothing else of lanes does.
create or replace function pawl_v1._lane_freed(p_lane bigint, p_queue text)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_detail jsonb := pawl_v1._lanes_free(array[p_lane]);
begin
  if v_detail ? 'promoted' then
    perform pawl_v1._wake(array[p_queue]);
  end if;
  return v_detail;
end
$$;

-- After these jobs have become dead letters or were cancelled, in this transaction: dead letters give up their turn unless
-- their lane's policy is block, and the lanes go on. detail as of _lanes_free.
create or replace function pawl_v1._lanes_leave(p_ids bigint[])
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lanes bigint[];
begin
  with ended as (
    update pawl.job as j
       set lane_head = j.lane_head and l.policy = 'block'
      from pawl.lane as l
     where j.id = any (p_ids)
       and l.id = j.lane_id
    returning j.lane_id, j.lane_head
  )
  select coalesce(array_agg(e.lane_id) filter (where not e.lane_head), '{}')
    into v_lanes
    from ended as e;
  return pawl_v1._lanes_free(v_lanes);
end
$$;

-- Promotes what waits first in a lane, if nothing has its turn: call it, in a transaction of its own, for a lane that
-- another call's detail named as skipped. Safe at any time.
-- outcome 'promoted', 'idle' (somebody has the turn, or nobody waits), 'absent' (no such lane).
-- 55P03: the lane is locked for longer than 250 ms; lane_sweep will find it.
create or replace function pawl_v1.lane_promote(p_lane bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
as $$
declare
  v_advanced record;
begin
  update pawl.lane as l
     set ver = l.ver + 1
   where l.id = p_lane;
  if not found then
    return query
    select 'absent', '{}'::jsonb;
    return;
  end if;
  select a.promoted, a.stuck
    into v_advanced
    from pawl_v1._lanes_advance(array[p_lane]) as a;
  if cardinality(v_advanced.stuck) > 0 then
    raise exception 'the first job of lane % is locked', p_lane
      using errcode = '55P03', hint = 'lane_sweep promotes it when it is free';
  end if;
  return query
  select case when v_advanced.promoted > 0 then 'promoted' else 'idle' end, '{}'::jsonb;
end
$$;

-- Promotes in every lane in which somebody waits and nobody has the turn: the backstop for those who died before they could
-- call lane_promote. Call it about once a second. It looks at up to p_limit lanes in which somebody waits, and never waits.
--
-- options: after (a lane's id: look at those above it only).
-- outcome 'swept'. promoted: how many may be claimed now. detail.next: pass it as after to look at the rest; absent after the last.
create or replace function pawl_v1.lane_sweep(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, promoted int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lane   bigint := pawl_v1._int_option(p_options, 'after', 0, 0, 9223372036854775807);
  v_frozen bigint[] := '{}';
  v_freed  jsonb := '{}';
begin
  perform pawl_v1._check_options(p_options, '{after}');
  perform pawl_v1._check_int('limit', p_limit, 1, 100000);
  for v_looked in 1..coalesce(p_limit, 10000) loop
    -- One entry of job_wait a lane, however many wait in it.
    select j.lane_id
      into v_lane
      from pawl.job as j
     where j.lane_id > v_lane
       and j.status = 'waiting'
     order by j.lane_id
     limit 1;
    exit when not found;
    perform from pawl.job as j where j.lane_id = v_lane and j.lane_head;
    if not found then
      v_frozen := v_frozen || v_lane;
    end if;
  end loop;
  if cardinality(v_frozen) > 0 then
    v_freed := pawl_v1._lanes_free(v_frozen);
  end if;
  return query
  select 'swept', coalesce((v_freed ->> 'promoted')::int, 0), jsonb_strip_nulls(jsonb_build_object('next', v_lane));
end
$$;

-- Deletes lanes that hold no job at all. Their order is not lost, since positions belong to all lanes; their policy is, unless
-- it was set by lane_policy: such lanes stay. It looks at up to p_limit lanes, and never waits.
--
-- options: after (a lane's id: look at those above it only).
-- outcome 'purged'. purged: how many. detail.next: pass it as after to look at the rest; absent after the last.
create or replace function pawl_v1.lane_purge(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_after  bigint := pawl_v1._int_option(p_options, 'after', 0, 0, 9223372036854775807);
  v_looked bigint[];
  v_idle   bigint[];
  v_purged int;
begin
  perform pawl_v1._check_options(p_options, '{after}');
  perform pawl_v1._check_int('limit', p_limit, 1, 100000);
  v_looked := array(
    select l.id
      from pawl.lane as l
     where l.id > v_after
     order by l.id
     limit coalesce(p_limit, 10000));
  v_idle := array(
    select l.id
      from pawl.lane as l
     where l.id = any (v_looked)
       and not l.kept
       and not pawl_v1._lane_is_used(l.id)
     order by l.id
       for update skip locked);
  -- Locked, they are looked at again: a job may have come in between.
  delete from pawl.lane as l
   where l.id = any (v_idle)
     and not pawl_v1._lane_is_used(l.id);
  get diagnostics v_purged = row_count;
  return query
  select 'purged', v_purged,
         case when cardinality(v_looked) = coalesce(p_limit, 10000)
           then jsonb_build_object('next', v_looked[cardinality(v_looked)])
           else '{}'
         end;
end
$$;

create or replace function pawl_v1._lane_is_used(p_lane bigint)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return pawl_v1._lane_is_open(p_lane)
      or exists (
           select from pawl.job as j
            where j.lane_id = p_lane
              and j.lane_id is not null
              and j.status in ('dead_letter', 'cancelled')
              and not j.lane_head);
end
$$;
