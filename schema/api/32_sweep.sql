-- The sweep that follows the death of a worker.

-- job_sweep takes back the jobs of the dead. Each is pending again after a short random pause, with
-- crashes + 1. If its attempts or crashes are used up, it becomes a dead letter. Crashes are used
-- up after max_crashes deaths at which the job was marked by worker_isolate, or three times as many
-- in all. A job without a worker counts as marked from its second death on. These count as dead:
--
-- - a worker that has left and abandoned jobs (worker_leave);
-- - a worker whose lease has ended. If it is announced as idle (worker_asleep), the sweep ends its
--   presence session too, so that a frozen worker does not stay announced. Your role must be
--   allowed to see and end that session, as the worker's own role is;
-- - a worker that declared its presence (worker_attend), has been silent for 1.5 s, and whose lock
--   was found free twice, at least 300 ms apart. A session younger than 5 s concludes nothing from
--   locks, because after a restart of the server all are free;
-- - a job claimed without a worker whose own lease has ended.
--
-- If the worker has left, or presence is the evidence, the attempt is given back and only the crash
-- counts. Only kinds in p_kinds become dead letters, because a sweeper does not decide on kinds it
-- does not know. Jobs whose transaction is still open are skipped. Deaths are recorded for
-- queue_death. A dead letter in a lane follows the lane's policy. If the next job gets the turn,
-- detail is that of job_finish.
--
-- Every worker runs it, and two at once are safe. One sweep serves all queues. If you have no
-- worker, run it about every second, in its own transaction, from a session that lives longer than
-- 5 s.
--
-- Outcomes:
--   swept  Done. The columns 'requeued', dead_lettered and 'workers' are counts.
--   busy   Another sweep is running.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   max_crashes  (1 to 1000, default 4) The crashes at which a job is a dead letter.
--   limit        (1 to 100,000, default 1000) Jobs a call, of workers and of leases of their own
--                each.
create or replace function pawl_v1.job_sweep(p_kinds text[], p_options jsonb default '{}')
returns table (outcome text, requeued int, dead_lettered int, workers int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_max_crashes int := pawl_v1._int_option(p_options, 'max_crashes', 4, 1, 1000);
  v_limit       int := pawl_v1._int_option(p_options, 'limit', 1000, 1, 100000);
  v_expired     bigint[];
  v_absent      bigint[];
  v_gone        bigint[];
  v_left        bigint[];
  v_requeued    int;
  v_dead        int;
  v_workers     int;
  v_ended       bigint[];
begin
  perform pawl_v1._check_options(p_options, '{max_crashes,limit}');
  if not pg_try_advisory_xact_lock(1885435756, 1) then -- 'pawl' in ASCII, then the lock's number
    return query
    select 'busy', 0, 0, 0, '{}'::jsonb;
    return;
  end if;

  v_expired := array(
    select w.id
      from pawl.worker as w
     where w.seen_at + w.lease < clock_timestamp()
     order by w.id
     limit 100
       for update skip locked);
  if cardinality(v_expired) > 0 then
    perform pawl_v1._presence_end(v_expired);
  end if;
  v_absent := pawl_v1._absent_workers(v_expired);
  v_gone := v_expired || v_absent;
  v_left := array(select w.id from pawl.worker as w where w.id = any (v_expired) and not isfinite(w.seen_at));

  insert into pawl.death as d (queue, died_at)
  select q.name, clock_timestamp()
    from pawl.worker as w
    cross join jsonb_array_elements_text(w.queues) as q (name)
   where w.id = any (v_gone)
     -- Not of a worker that has left and abandoned no job.
     and (isfinite(w.seen_at) or exists (select from pawl.job as j where j.claimed_by = w.id))
   group by q.name -- not distinct: the time differs per row
   order by q.name
  on conflict (queue) do update
     set died_at = excluded.died_at;

  with orphan as (
    select j.id,
           exists (
             select
               from pawl.worker as w
              where w.id = j.claimed_by
                and w.alone_job = j.id
                and w.alone_fence = j.fence) as alone
      from pawl.job as j
     where j.claimed_by = any (v_gone)
     order by j.id
     limit v_limit
       for update skip locked -- a locked row has a live holder
  ), expired as (
    select j.id, j.crashes > 0 as alone
      from pawl.job as j
     where j.claimed_by = 0
       and j.lease_expires_at < clock_timestamp()
     order by j.id
     limit v_limit
       for update skip locked
  ), swept as (
    update pawl.job as j
       set status = case
             when (due.alone and j.crashes_alone + 1 >= v_max_crashes
                   or j.crashes + 1 >= 3 * v_max_crashes
                   or j.attempts >= j.max_attempts and j.claimed_by <> all (v_absent || v_left))
                  and j.kind = any (p_kinds) then 'dead_letter'
             else 'pending'
           end,
           attempts = case when j.claimed_by = any (v_absent || v_left) then greatest(j.attempts - 1, 0) else j.attempts end,
           claimed_by = null,
           lease_expires_at = null,
           -- Jobs of unknown kinds are not dead-lettered, so bound it.
           crashes = least(j.crashes + 1, 1000),
           crashes_alone = least(j.crashes_alone + due.alone::int, 1000),
           available_at = clock_timestamp() + random() * power(2, least(j.crashes, 6)) * interval '100 milliseconds',
           last_errors = pawl_v1._push_error(j.last_errors,
             jsonb_build_object('code', 'crash', 'error', case
               when j.claimed_by = any (v_left) then 'the worker stopped, and the handler had not returned'
               else 'the worker died or froze past its lease'
             end), j.attempts, j.fence, j.claimed_by,
             case
               when j.claimed_by = 0 then j.lease_expires_at
               when j.claimed_by <> all (v_absent) then (select w.seen_at + w.lease from pawl.worker as w where w.id = j.claimed_by)
             end)
      from (select o.id, o.alone from orphan as o union all select e.id, e.alone from expired as e) as due
     where j.id = due.id
       and j.status = 'processing'
       and (j.claimed_by = any (v_gone) or j.claimed_by = 0 and j.lease_expires_at < clock_timestamp())
    returning j.id, j.status, j.lane_id
  )
  select count(*) filter (where s.status = 'pending'), count(*) filter (where s.status = 'dead_letter'),
         array_agg(s.id) filter (where s.status = 'dead_letter' and s.lane_id is not null)
    into v_requeued, v_dead, v_ended
    from swept as s;

  delete from pawl.worker as w
   where w.id = any (v_gone)
     and not exists (select from pawl.job as j where j.claimed_by = w.id);
  get diagnostics v_workers = row_count;
  delete from pawl.recall as r
   where not exists (select from pawl.worker as w where w.id = r.worker_id);
  return query
  select 'swept', v_requeued, v_dead, v_workers,
         case when v_ended is null then '{}' else pawl_v1._lanes_leave(v_ended) end;
end
$$;

-- _presence_end terminates the presence sessions of workers whose lease has ended and that are
-- declared idle, if the caller's role may. A frozen process or a lost host would stay idle as long
-- as the server keeps its connection, and each enqueue into its queues would notify. It terminates
-- no other session: only a presence connection holds both the worker's presence lock and the
-- exclusive lock of an idle queue, outside a transaction. Lookup and termination are one statement,
-- so the process id cannot have been reused. Sessions hidden from the caller's role are left to a
-- sweep with that role. If two workers share a number, the other reconnects.
create or replace function pawl_v1._presence_end(p_workers bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_worker bigint;
begin
  foreach v_worker in array p_workers loop
    begin
      perform pg_terminate_backend(l.pid)
         from pg_catalog.pg_locks as l
         join pg_catalog.pg_stat_activity as a on a.pid = l.pid
        where l.locktype = 'advisory'
          and l.database = a.datid
          and a.datname = current_database()
          and l.classid = 1885435757
          and l.objid = pawl_v1._presence(v_worker)::oid
          and l.objsubid = 2 -- a key of two ints
          and l.granted
          and l.mode = 'ExclusiveLock'
          and l.pid <> pg_backend_pid()
          and a.state in ('idle', 'disabled') -- disabled: track_activities is off
          and exists (
                select
                  from pg_catalog.pg_locks as s
                 where s.locktype = 'advisory'
                   and s.pid = l.pid
                   and s.database = l.database
                   and s.classid = 1885435767
                   and s.objsubid = 2
                   and s.granted
                   and s.mode = 'ExclusiveLock');
    exception
      when insufficient_privilege then null; -- a session of another role
    end;
  end loop;
end
$$;

-- _absent_workers returns the workers that are dead by the evidence of their presence locks, each
-- locked FOR UPDATE. suspected_at keeps the first finding; a heartbeat clears it.
create or replace function pawl_v1._absent_workers(p_known bigint[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_absent bigint[] := '{}';
  v_worker pawl.worker;
  v_free   boolean;
begin
  perform
     from pg_catalog.pg_stat_activity as a
    where a.pid = pg_backend_pid()
      and a.backend_start < clock_timestamp() - interval '5 seconds';
  if not found then
    return v_absent;
  end if;
  for v_worker in
    select w.*
      from pawl.worker as w
     where w.presence
       and w.seen_at < clock_timestamp() - interval '1500 milliseconds'
       and w.id <> all (p_known)
     order by w.id
     limit 100
       for update skip locked
  loop
    -- A session gets a lock that it holds again, so its own lock is no evidence.
    perform
       from pg_catalog.pg_locks as l
      where l.locktype = 'advisory'
        and l.pid = pg_backend_pid()
        and l.classid = 1885435757
        and l.objid = pawl_v1._presence(v_worker.id)::oid
        and l.objsubid = 2; -- a key of two ints
    v_free := not found and pg_try_advisory_xact_lock(1885435757, pawl_v1._presence(v_worker.id));
    if v_free and v_worker.suspected_at < clock_timestamp() - interval '300 milliseconds' then
      v_absent := v_absent || v_worker.id;
    elsif v_free <> (v_worker.suspected_at is not null) then
      update pawl.worker as w
         set suspected_at = case when v_free then clock_timestamp() end
       where w.id = v_worker.id;
    end if;
  end loop;
  return v_absent;
end
$$;

-- queue_death returns when a worker of the queue last died, as far as known, by the database's
-- clock. A consumer uses it to decide whether a redelivered message may have killed its process.
-- Workers name their queues in worker_register.
--
-- Outcomes:
--   died    A sweep found a worker dead at died_at.
--   silent  A worker has sent no heartbeat for 3 s, and no sweep has judged it yet. It may be dead,
--           and died_at is now.
--   none    No death is known.
create or replace function pawl_v1.queue_death(p_queue text)
returns table (outcome text, died_at timestamptz, detail jsonb)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select case when s.silent then 'silent' when d.died_at is null then 'none' else 'died' end,
         case when s.silent then clock_timestamp() else d.died_at end,
         '{}'::jsonb
    from (select exists (
                   select
                     from pawl.worker as w
                    where w.queues ? p_queue
                      and isfinite(w.seen_at)
                      and w.seen_at < clock_timestamp() - interval '3 seconds') as silent) as s
    left join pawl.death as d on d.queue = p_queue
$$;
