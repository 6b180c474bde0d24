-- The archive: jobs that finished in the last seven days, for queues with option archive
-- (queue_set). Eight plain tables are used in turn by day and emptied by TRUNCATE. There is no DDL
-- and no partition for which a finish could fail or wait.

-- _day returns the number of a day since 1970, in UTC.
create or replace function pawl_v1._day(p_at timestamptz)
returns bigint
language sql
stable
return floor(extract(epoch from p_at) / 86400)::bigint;

-- _job_take deletes jobs and returns them with the columns of an archive table. The columns are
-- listed, because `returns setof pawl.archive_0` would lock that table once per session. A finish
-- would then wait for the sweep that empties it.
create or replace function pawl_v1._job_take(p_ids bigint[], p_at timestamptz)
returns table (
  id bigint, fence bigint, "position" bigint, created_at timestamptz, finished_at timestamptz, priority pawl.priority, attempts pawl.count,
  crashes pawl.count, queue pawl.name, kind pawl.name, lane pawl.name, payload bytea, headers jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  delete from pawl.job as j
   where j.id = any (array(select unnest(p_ids)))
  returning j.id, j.fence, j.position, j.created_at, p_at, j.priority, j.attempts, j.crashes, j.queue, j.kind,
            (select l.name from pawl.lane as l where l.id = j.lane_id), j.payload, j.headers;
end
$$;

-- _archive moves finished jobs into the table of the day. The caller has locked them and checked
-- their fences. Each table has its own statement, so that a finish locks only the table of the day.
create or replace function pawl_v1._archive(p_ids bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_at timestamptz := clock_timestamp();
begin
  case pawl_v1._day(v_at) % 8
    when 0 then
      insert into pawl.archive_0 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 1 then
      insert into pawl.archive_1 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 2 then
      insert into pawl.archive_2 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 3 then
      insert into pawl.archive_3 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 4 then
      insert into pawl.archive_4 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 5 then
      insert into pawl.archive_5 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 6 then
      insert into pawl.archive_6 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
    when 7 then
      insert into pawl.archive_7 select t.* from pawl_v1._job_take(p_ids, v_at) as t;
  end case;
end
$$;

-- _archive_held archives the jobs of p_kept that are still held, for job_finish_many.
create or replace function pawl_v1._archive_held(
  p_kept   bigint[],
  p_ids    bigint[],
  p_fences bigint[],
  inout gone   bigint[],
  inout fences bigint[],
  inout lanes  bigint[]
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held bigint[];
begin
  select array_agg(j.id), gone || array_agg(j.id), fences || array_agg(j.fence), lanes || array_agg(j.lane_id) filter (where j.lane_id is not null)
    into v_held, gone, fences, lanes
    from pawl.job as j
    join unnest(p_ids, p_fences) as g (id, fence) on g.id = j.id
   where j.id = any (array(select unnest(p_kept)))
     and j.status = 'processing'
     and j.fence = g.fence;
  if v_held is null then
    return;
  end if;
  perform pawl_v1._archive(v_held);
  select array_agg(d.id order by d.id), array_agg(d.fence order by d.id)
    into gone, fences
    from unnest(gone, fences) as d (id, fence);
end
$$;

-- _archive_is_old reports whether an archive table has rows, and none from p_edge on. It skips from
-- queue to queue along an index, so its cost does not depend on the table's size.
create or replace function pawl_v1._archive_is_old(p_slot int, p_edge timestamptz)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_old boolean;
begin
  execute format($query$
    with recursive queues as (
      select (select min(a.queue) from pawl.archive_%1$s as a) as queue
       union all
      select (select min(a.queue) from pawl.archive_%1$s as a where a.queue > q.queue)
        from queues as q
       where q.queue is not null
    )
    select bool_and(not exists (select from pawl.archive_%1$s as a where a.queue = q.queue and a.finished_at >= $1))
      from queues as q
     where q.queue is not null $query$, p_slot)
    into v_old
   using p_edge;
  return coalesce(v_old, false);
end
$$;

-- archive_sweep empties, by TRUNCATE, the tables of the archive whose rows are all older than today
-- and the six days before, by UTC. Workers call it once a minute. Without a worker call it
-- yourself, at least once a day, in its own transaction. If it is not called for a day, a table
-- mixes two weeks, and its older rows stay until both are old. It decides by the rows' times, so a
-- clock set back loses no recent row. Two calls at once are safe.
--
-- Outcomes:
--   swept  The column emptied is the number of emptied tables.
--   busy   A transaction has had a table locked for 50 ms. detail.busy has the numbers of the
--          tables. Ask again in a minute. Other transactions wait no longer than that for the
--          sweep.
--
-- Errors:
--   P4004  The transaction is at REPEATABLE READ or above. There the sweep cannot see all rows, and
--          would delete recent ones.
create or replace function pawl_v1.archive_sweep()
returns table (outcome text, emptied int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
  v_today   bigint := pawl_v1._day(clock_timestamp());
  v_edge    timestamptz := to_timestamp((v_today - 6) * 86400);
  v_emptied int := 0;
  v_busy    int[] := '{}';
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'archive_sweep runs at READ COMMITTED, not at %', upper(current_setting('transaction_isolation'))
      using errcode = 'P4004', hint = 'begin isolation level read committed';
  end if;
  for v_slot in 0..7 loop
    continue when v_slot = v_today % 8; -- finishes write to it, and a lock would stop them
    begin
      if pawl_v1._archive_is_old(v_slot, v_edge) then
        execute format('lock table pawl.archive_%s in access exclusive mode', v_slot);
        -- Check again under the lock: a finish may have come in between.
        if pawl_v1._archive_is_old(v_slot, v_edge) then
          execute format('truncate pawl.archive_%s', v_slot);
          v_emptied := v_emptied + 1;
        end if;
      end if;
    exception
      when lock_not_available then
        v_busy := v_busy || v_slot;
    end;
  end loop;
  return query
  select case when cardinality(v_busy) > 0 then 'busy' else 'swept' end, v_emptied,
         case when cardinality(v_busy) > 0 then jsonb_build_object('busy', to_jsonb(v_busy)) else '{}' end;
end
$$;
