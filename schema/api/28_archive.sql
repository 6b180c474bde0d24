-- The archive: what finished in the last seven days, for the queues that ask for it (queue_set). Eight plain tables, used in turn
-- by the day and emptied by TRUNCATE: no DDL, no partitions, nothing a finish could fail or wait for.

-- The number of a day, in UTC, since 1970.
create or replace function pawl_v1._day(p_at timestamptz)
returns bigint
language sql
stable
return floor(extract(epoch from p_at) / 86400)::bigint;

-- Deletes jobs and returns them with the columns of an archive table. The columns are listed on
-- purpose: `returns setof pawl.archive_0` would lock that table once a session, and a finish would
-- then wait for the sweep that empties it.
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

-- Moves jobs that have finished into the table of the day. The caller has locked them and proved their fences. Each table has
-- a statement of its own, so that a finish locks the table of the day and no other.
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

-- Of some locked jobs, archives those that are still held, and adds them to what job_finish_many has ended already.
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

-- Whether a table of the archive has rows, and none from p_edge on. It hops from queue to queue along an index, so it reads no
-- table however large.
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

-- Empties the tables of the archive whose rows are all older than the ring: today and the six days before it stay, by UTC. Call
-- it about once a minute, in a transaction of its own. It waits for a lock for 50 ms at most, and so does who comes behind it.
-- The rows decide, not the calendar: a clock that was set back, or a day without a sweep, costs no row that is young.
--
-- outcome 'swept'; 'busy': some table could not be locked, ask again. emptied: how many tables. detail.busy: their numbers.
-- P4004: the transaction is at REPEATABLE READ or above, where rows that are too new to be seen would go.
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
    continue when v_slot = v_today % 8; -- finishes write to it: who locked it would stop them until this transaction ends
    begin
      if pawl_v1._archive_is_old(v_slot, v_edge) then
        execute format('lock table pawl.archive_%s in access exclusive mode', v_slot);
        -- Locked, it is looked at again: a finish may have come in between.
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
