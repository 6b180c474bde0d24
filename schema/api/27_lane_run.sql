-- Runs: a holder of heads works on those that wait behind them as well, in order, where the work takes ordered batches.
-- Those stay 'waiting': only the head has the turn, and its fence guards all of them.

-- What waits behind some heads that the caller holds, in the order in which it would be promoted: up to p_limit jobs a lane. Work on each run in
-- its order, the head first, then call lane_finish for the prefix that is done. A run ends before the first job that is not due, was tried before or is of another kind.
-- A head that was tried before, or was in hand when its process died, has no run, nor have those that waited in its run then, nor those
-- of a queue that is paused or drains. It never waits.
--
-- One row a job; none for a head without a run. head: the job whose fence guards it. detail: lane and position.
create or replace function pawl_v1.lane_run(p_ids bigint[], p_fences bigint[], p_limit int default 100, p_options jsonb default '{}')
returns table (
  head bigint, id bigint, kind text, payload bytea, headers jsonb, max_attempts int, created_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_head record;
  v_run  bigint[];
  v_end  bigint;
begin
  perform pawl_v1._check_options(p_options, '{}'),
          pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0)),
          pawl_v1._check_int('limit', p_limit, 1, 1000);
  for v_head in
    select j.id, j.lane_id, j.kind, j.lane_head, (select l.name from pawl.lane as l where l.id = j.lane_id) as lane -- joined, it would lead
      from pawl.job as j
     where j.id = any (array(select unnest(p_ids))) -- see job_claim
       and (j.id, j.fence) in (select g.id, g.fence from unnest(p_ids, p_fences) as g (id, fence))
       and j.status = 'processing'
       and j.attempts = 1
       and j.crashes = 0
       and coalesce(j.run_end, 0) >= 0
       and not exists (select from pawl.queue as q where q.name = j.queue and q.mode in ('paused', 'draining'))
     order by j.id
       for no key update skip locked
  loop
    continue when not v_head.lane_head; -- asked for above, it would have the index of all heads read
    select array_agg(n.id order by n.position), max(n.position)
      into v_run, v_end
      from (
        select w.id, w.position, bool_and(w.fits) over (order by w.position) as fits
          from (
            select j.id, j.position,
                   j.available_at <= clock_timestamp() and j.attempts = 0 and j.crashes = 0 and j.kind = v_head.kind
                     and j.run_end is null as fits
              from pawl.job as j
             where j.lane_id = v_head.lane_id
               and j.status = 'waiting'
             order by j.position
             limit coalesce(p_limit, 100)) as w) as n
     where n.fits;
    continue when v_run is null;
    -- Written, so that the caller's COMMIT waits for the synchronous standbys, and with it whatever was read here.
    update pawl.job as j
       set run_end = v_end
     where j.id = v_head.id;
    return query
    select v_head.id, j.id, j.kind::text, j.payload, j.headers, j.max_attempts::int, j.created_at,
           jsonb_build_object('lane', v_head.lane, 'position', j.position)
      from pawl.job as j
     where j.id = any (array(select unnest(v_run)))
     order by j.position;
  end loop;
end
$$;

-- Ends heads well, and of their runs those in p_members: as job_finish_many with skip_stale, in one transaction. Pass a prefix of each run.
-- Members of a head that is not held any more are not ended. Of each lane it ends members up to the first that another transaction has locked,
-- and passes by those that an operator has ended. When a head that crashed in a run has ended, those that waited in that run are to go alone.
--
-- outcome per head as of job_finish_many. members: how many of its run were ended.
create or replace function pawl_v1.lane_finish(p_ids bigint[], p_fences bigint[], p_members bigint[], p_options jsonb default '{}')
returns table (id bigint, outcome text, members int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held   bigint[];
  v_lanes  bigint[]; -- of v_held
  v_ended  bigint[];
  v_counts jsonb;    -- of members, by lane
begin
  perform pawl_v1._check_options(p_options, '{}'),
          pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0)),
          pawl_v1._check_int('members', coalesce(cardinality(p_members), 0), 0, 10000);
  for v_try in 1..2 loop
    select array_agg(h.id) filter (where h.lane_head), array_agg(h.lane_id) filter (where h.lane_head) -- see lane_run
      into v_held, v_lanes
      from (
        select j.id, j.lane_id, j.lane_head
          from pawl.job as j
         where j.id = any (array(select unnest(p_ids))) -- see job_claim
           and (j.id, j.fence) in (select g.id, g.fence from unnest(p_ids, p_fences) as g (id, fence))
           and j.status = 'processing'
         order by j.id
           for update skip locked) as h;
    exit when v_try = 2 or cardinality(v_held) = cardinality(p_ids);
    perform pawl_v1._jobs_wait(pawl_v1._jobs_elsewhere(p_ids, p_fences, coalesce(v_held, '{}')), 250);
  end loop;
  if cardinality(p_members) > 0 and v_held is not null then
    v_ended := pawl_v1._run_members(v_lanes, p_members);
    select jsonb_object_agg(c.lane_id, c.n)
      into v_counts
      from (
        select j.lane_id, count(*) as n
          from pawl.job as j
         where j.id = any (array(select unnest(v_ended)))
         group by j.lane_id) as c;
    perform pawl_v1._run_end(v_ended);
  end if;
  perform pawl_v1._run_hand_down(v_held);
  return query
  select f.id, f.outcome, coalesce((v_counts ->> (v_lanes[array_position(v_held, f.id)])::text)::int, 0), f.detail
    from pawl_v1.job_finish_many(p_ids, p_fences, '{"skip_stale": true}') as f;
end
$$;

-- Locks those of some jobs that wait in these lanes, and returns them: in each lane, up to the first that another transaction has locked.
create or replace function pawl_v1._run_members(p_lanes bigint[], p_members bigint[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked bigint[];
begin
  v_locked := array(
    select j.id
      from pawl.job as j
     where j.id = any (array(select unnest(p_members)))
       and j.status = 'waiting'
       and j.lane_id = any (p_lanes)
     order by j.id
       for update skip locked);
  return array(
    select n.id
      from (
        select j.id, bool_and(j.id = any (v_locked)) over (partition by j.lane_id order by j.position) as whole
          from pawl.job as j
         where j.id = any (array(select unnest(p_members)))
           and j.status = 'waiting'
           and j.lane_id = any (p_lanes)) as n
     where n.whole);
end
$$;

-- Deletes members of runs, or archives them. The caller has locked them.
create or replace function pawl_v1._run_end(p_ids bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_kept bigint[];
begin
  v_kept := array(
    select j.id
      from pawl.job as j
     where j.id = any (array(select unnest(p_ids)))
       and j.queue = any (array(select q.name from pawl.queue as q where q.archive)));
  if cardinality(v_kept) > 0 then
    update pawl.job as j
       set attempts = 1
     where j.id = any (v_kept);
    perform pawl_v1._archive(v_kept);
  end if;
  delete from pawl.job as j
   where j.id = any (array(select unnest(p_ids)));
end
$$;

-- Of heads that are about to end, and went alone because one crashed in a run: the next of the lane goes alone too, up to the end of that run.
create or replace function pawl_v1._run_hand_down(p_heads bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_head record;
begin
  for v_head in
    select j.lane_id, abs(j.run_end) as run_end
      from pawl.job as j
     where j.id = any (array(select unnest(p_heads)))
       and (j.run_end < 0 or j.run_end > 0 and j.crashes > 0)
  loop
    update pawl.job as j
       set run_end = - v_head.run_end
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
              where n.position <= v_head.run_end
                for update of l skip locked);
  end loop;
end
$$;
