-- Lanes: jobs of one lane of a queue run one at a time, in the order in which they were enqueued.
--
--     enqueue ──▶ waiting ── promoted ──▶ pending ⇄ processing ──▶ finished: the next is promoted
--        │                                   ▲          └──▶ dead_letter
--        └── the lane is empty ──────────────┘               policy block: the lane stops
--                                                        park, skip: the next is promoted
--
-- The job with lane_head is the head. Three rules, checked by docs/internals/model:
--   1. First the head's row goes (deleted, or lane_head = false). Then the lane's row is locked,
--      without waiting: a long transaction that enqueued into the lane must not delay a finish.
--   2. A transaction that adds or promotes a job updates the lane's row before it reads the jobs.
--      With a lock alone, an old snapshot (REPEATABLE READ) would not get 40001. It could then put
--      a job behind one that is gone.
--   3. Lanes that had to be skipped are returned in detail. The caller calls lane_promote for each
--      after its commit. If it dies first, lane_sweep finds the lane.

-- _lane_is_open reports whether a lane has a head. Update the lane's row first.
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

-- _lane_of returns the lane and position of a claimed job.
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

-- _lanes_enter locks the lanes of a call in name order, creates missing ones, updates their rows
-- and returns their ids; null where there is no name. It waits for locked ones.
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

-- _lanes_advance promotes the first waiting job of each lane that has no head. The caller has
-- updated the lanes' rows in an earlier statement. It does not wait for a job whose row is locked,
-- and promotes no other in its place. stuck: lanes where a job waits and none was promoted.
create or replace function pawl_v1._lanes_advance(p_lanes bigint[], out promoted int, out stuck bigint[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_next  bigint[]; -- the first waiting job of each lane
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

-- _lanes_free promotes the successors after the heads of these lanes have ended in this
-- transaction. It never waits. detail.promoted: number of jobs that may be claimed now.
-- detail.skipped: ids of locked lanes; call lane_promote for each after your commit.
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

-- _lane_freed is _lanes_free for calls by operators and applications: it also wakes a worker for
-- the next job. A worker that ends a head claims the next job itself.
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

-- _lanes_leave is called after jobs became dead letters or were cancelled in this transaction. A
-- dead letter stays head only under policy block; the other lanes go on. detail as of _lanes_free.
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

-- lane_promote gives the turn to the first waiting job of a lane, if no job has it. Call it in its
-- own transaction for each lane that detail.skipped of another call names. It is safe at any time.
--
-- Outcomes:
--   promoted  A job may be claimed.
--   idle      A job has the turn, or none waits.
--   absent    There is no such lane.
--
-- Errors:
--   55P03  The lane, or the job, has been locked for more than 250 ms. Leave it to lane_sweep.
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

-- lane_sweep gives the turn in every lane in which jobs wait and none has it. It is the backstop
-- for processes that died before they called lane_promote. Workers call it every second, or every
-- 20 times its own length. It looks at up to p_limit lanes (1 to 100,000) in which jobs wait, and
-- never waits for a lock. A lane takes 14 µs on the machine of docs/decisions/0012-lanes.md.
--
-- Outcomes:
--   swept  The column promoted is the number of jobs that may be claimed now. detail.next is the
--          value of 'after' for the next call; it is absent after the last lane.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   after  (id of a lane, default none) Look only at higher ids.
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
    -- One entry of index job_wait per lane, however many jobs wait.
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

-- lane_purge deletes lanes that hold no job at all, not even a dead or cancelled one, unless their
-- policy was set by lane_policy. The order is not lost, because positions come from one sequence
-- for all lanes. Workers call it once a minute. It looks at up to p_limit lanes (1 to 100,000) and
-- never waits.
--
-- Outcomes:
--   purged  The column purged is the number of lanes. detail.next as of lane_sweep.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   after  (id of a lane, default none) Look only at higher ids.
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
  -- Check again under the lock: a job may have come in between.
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
