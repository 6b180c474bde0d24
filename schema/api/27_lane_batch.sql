-- Batches: the holder of a lane's head also works on the jobs that wait behind it, in order. The
-- members stay 'waiting': only the head is held, and its fence guards all of them.

-- lane_batch returns the jobs that wait behind heads that you hold (up to 500), in the order in
-- which they would get the turn: up to p_limit a lane (1 to 1000). They stay 'waiting', and no
-- other worker can take them while you hold the head. Work on the head and then on its batch, in
-- order. End the jobs that are done with lane_finish. The column head is the job whose fence guards
-- the row's job. detail has 'lane' and 'position'.
--
-- A batch ends before the first job that is not due, was tried before or is of another kind. A head
-- has no batch if it was tried before, or in a queue that is paused or drains. The same holds for
-- jobs of a batch whose process died. The call never waits. There are no options.
--
-- Errors:
--   P4004  An argument.
create or replace function pawl_v1.lane_batch(p_ids bigint[], p_fences bigint[], p_limit int default 100, p_options jsonb default '{}')
returns table (
  head bigint, id bigint, kind text, payload bytea, headers jsonb, max_attempts int, created_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_heads bigint[];
  v_lanes bigint[]; -- of v_heads, like the next two
  v_names text[];
  v_kinds text[];
begin
  perform pawl_v1._check_options(p_options, '{}'),
          pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0)),
          pawl_v1._check_int('limit', p_limit, 1, 1000);
  -- A test of lane_head in WHERE would let the planner read the index of all heads. IS TRUE makes
  -- the fence test a hash lookup. Else it is a join of each head with each id.
  select array_agg(h.id) filter (where h.lane_head), array_agg(h.lane_id) filter (where h.lane_head),
         array_agg(h.lane) filter (where h.lane_head), array_agg(h.kind) filter (where h.lane_head)
    into v_heads, v_lanes, v_names, v_kinds
    from (
      -- As a join it would be the outer side.
      select j.id, j.lane_id, j.kind, j.lane_head, (select l.name from pawl.lane as l where l.id = j.lane_id) as lane
        from pawl.job as j
       where j.id = any (array(select unnest(p_ids))) -- see job_claim
         and ((j.id, j.fence) in (select g.id, g.fence from unnest(p_ids, p_fences) as g (id, fence))) is true
         and j.status = 'processing'
         and j.attempts = 1
         and j.crashes = 0
         and coalesce(j.batch_end, 0) >= 0
         and not exists (select from pawl.queue as q where q.name = j.queue and q.mode in ('paused', 'draining'))
       order by j.id
         for no key update skip locked) as h;
  if v_heads is null then
    return;
  end if;
  return query
  with batch as (
    select h.id as head, h.lane, n.*
      from unnest(v_heads, v_lanes, v_names, v_kinds) as h (id, lane_id, lane, kind)
     cross join lateral (
            select w.*, bool_and(w.fits) over (order by w.position) as fit
              from (
                select j.id, j.kind, j.payload, j.headers, j.max_attempts, j.created_at, j.position,
                       j.available_at <= clock_timestamp() and j.attempts = 0 and j.crashes = 0 and j.kind = h.kind
                         and j.batch_end is null as fits
                  from pawl.job as j
                 where j.lane_id = h.lane_id
                   and j.status = 'waiting'
                 order by j.position
                 limit coalesce(p_limit, 100)) as w) as n
     where n.fit
  -- This write makes COMMIT wait for the synchronous standbys: it proves what was read here.
  ), noted as (
    update pawl.job as j
       set batch_end = e.position
      from (select b.head, max(b.position) as position from batch as b group by b.head) as e
     where j.id = any (array(select unnest(v_heads)))
       and j.id = e.head
  )
  select b.head, b.id, b.kind::text, b.payload, b.headers, b.max_attempts::int, b.created_at,
         jsonb_build_object('lane', b.lane, 'position', b.position)
    from batch as b
   order by b.head, b.position;
end
$$;

-- lane_finish finishes heads, and those jobs of their batches that p_members lists (up to 10,000;
-- pass a prefix of each batch), in one transaction. It returns a row per head. The column members
-- is the number of jobs behind it that were finished. There are no options.
--
-- If a head is no longer held, no job behind it is finished. Jobs that an operator has ended are
-- skipped. In each lane it stops before the first that another transaction has locked. After a head
-- that crashed in a batch, the other jobs of that batch run singly.
--
-- Outcomes:
--   finished, stale, locked
--             Of the head, and detail, as of job_finish_many with skip_stale.
--
-- Errors:
--   P4004  An argument.
create or replace function pawl_v1.lane_finish(p_ids bigint[], p_fences bigint[], p_members bigint[], p_options jsonb default '{}')
returns table (id bigint, outcome text, members int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked  bigint[]; -- of p_ids: existing rows that no other transaction has locked
  v_held    bigint[]; -- of v_locked: jobs that the caller still holds
  v_fences  bigint[]; -- of v_held
  v_lanes   bigint[]; -- of v_held
  v_turns   bigint[]; -- those of v_lanes whose head is in v_held
  v_alone   bigint[]; -- of v_lanes: lanes where a process died in a batch
  v_ends    bigint[]; -- of v_alone: last position of that batch
  v_members bigint[];
  v_behind  bigint[]; -- lanes of v_members
  v_freed   jsonb := '{}';
begin
  perform pawl_v1._check_options(p_options, '{}'),
          pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0)),
          pawl_v1._check_int('members', coalesce(cardinality(p_members), 0), 0, 10000);
  for v_try in 1..2 loop
    select coalesce(array_agg(h.id), '{}'),
           array_agg(h.id) filter (where h.held),
           array_agg(h.fence) filter (where h.held),
           array_agg(h.lane_id) filter (where h.held),
           array_agg(h.lane_id) filter (where h.held and h.lane_head),
           array_agg(h.lane_id) filter (where h.held and h.crashed),
           array_agg(abs(h.batch_end)) filter (where h.held and h.crashed)
      into v_locked, v_held, v_fences, v_lanes, v_turns, v_alone, v_ends
      from (
        select j.id, j.fence, j.lane_id, j.lane_head, j.batch_end, j.batch_end < 0 or j.batch_end > 0 and j.crashes > 0 as crashed,
               j.status = 'processing' and (j.id, j.fence) in (select g.id, g.fence from unnest(p_ids, p_fences) as g (id, fence)) as held
          from pawl.job as j
         where j.id = any (array(select unnest(p_ids))) -- see job_claim
         order by j.id
           for update skip locked) as h;
    exit when v_try = 2 or cardinality(v_held) = cardinality(p_ids);
    perform pawl_v1._jobs_wait(pawl_v1._jobs_elsewhere(p_ids, p_fences, v_locked), 250);
  end loop;
  if v_held is not null then
    if cardinality(p_members) > 0 then
      select m.ids, m.lanes
        into v_members, v_behind
        from pawl_v1._batch_members(v_turns, p_members) as m;
    end if;
    perform pawl_v1._batch_remove(v_held || v_members);
    if v_alone is not null then
      perform pawl_v1._batch_hand_down(v_alone, v_ends);
    end if;
    v_freed := pawl_v1._lanes_free(array_remove(v_lanes, null));
  end if;
  return query
  select g.id,
         case when h.id is null then pawl_v1._holding(g.id, g.id = any (v_locked), false) else 'finished' end,
         coalesce(m.n, 0)::int,
         case row_number() over (order by g.id) when 1 then v_freed else '{}' end
    from unnest(p_ids, p_fences) as g (id, fence)
    left join unnest(v_held, v_fences, v_lanes) as h (id, fence, lane_id) on h.id = g.id and h.fence = g.fence
    left join (select e.lane_id, count(*) as n from unnest(v_behind) as e (lane_id) group by e.lane_id) as m on m.lane_id = h.lane_id
   order by g.id;
end
$$;

-- _batch_members locks those of p_members that wait in these lanes, and returns them with their
-- lanes. Each lane counts up to the first member that another transaction has locked. If it has
-- locked them all, which is usual, it does not search for that one.
create or replace function pawl_v1._batch_members(p_lanes bigint[], p_members bigint[], out ids bigint[], out lanes bigint[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked bigint[];
begin
  select array_agg(l.id), array_agg(l.lane_id)
    into v_locked, lanes
    from (
      select j.id, j.lane_id
        from pawl.job as j
       where j.id = any (array(select unnest(p_members)))
         and j.status = 'waiting'
         and j.lane_id = any (p_lanes)
       order by j.id
         for update skip locked) as l;
  ids := v_locked;
  if cardinality(ids) = cardinality(p_members) then
    return;
  end if;
  select array_agg(n.id), array_agg(n.lane_id)
    into ids, lanes
    from (
      select j.id, j.lane_id, bool_and(j.id = any (v_locked)) over (partition by j.lane_id order by j.position) as whole
        from pawl.job as j
       where j.id = any (array(select unnest(p_members)))
         and j.status = 'waiting'
         and j.lane_id = any (p_lanes)) as n
   where n.whole;
end
$$;

-- _batch_remove deletes heads and members of their batches, which the caller has locked. In a queue
-- with an archive they are archived, members with one attempt.
create or replace function pawl_v1._batch_remove(p_ids bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_kept bigint[];
begin
  if exists (select from pawl.queue as q where q.archive) then
    v_kept := array(
      select j.id
        from pawl.job as j
       where j.id = any (array(select unnest(p_ids)))
         and j.queue = any (array(select q.name from pawl.queue as q where q.archive)));
  end if;
  if cardinality(v_kept) > 0 then
    update pawl.job as j
       set attempts = 1
     where j.id = any (array(select unnest(v_kept)))
       and j.status = 'waiting';
    perform pawl_v1._archive(v_kept);
  end if;
  delete from pawl.job as j
   where j.id = any (array(select unnest(p_ids)));
end
$$;

-- _batch_hand_down marks the next job of each lane to run singly, up to the last position of the
-- batch in which a process died. Call it after their heads have ended.
create or replace function pawl_v1._batch_hand_down(p_lanes bigint[], p_ends bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_head record;
begin
  for v_head in
    select h.lane_id, h.batch_end
      from unnest(p_lanes, p_ends) as h (lane_id, batch_end)
  loop
    update pawl.job as j
       set batch_end = - v_head.batch_end
     where j.id = (
             select n.id
               from (
                 select w.id, w.position
                   from pawl.job as w
                  where w.lane_id = v_head.lane_id
                    and w.status = 'waiting'
                  order by w.position
                  limit 1) as n
               join pawl.job as l on l.id = n.id
              where n.position <= v_head.batch_end
                for update of l skip locked);
  end loop;
end
$$;
