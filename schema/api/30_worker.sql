-- Workers: one row per process incarnation, with the lease of all that it has claimed.

-- worker_register registers one incarnation of a process. p_lease (1 s to 12 h) is how long it may
-- miss heartbeats before its jobs are taken back. The example is under job_claim.
--
-- Errors:
--   P4000, P4004  An argument.
--
-- Options:
--   queues  (array of up to 1,000 names, default none) The queues that it works on, for
--           queue_death.
create or replace function pawl_v1.worker_register(p_name text, p_lease interval default '30 seconds', p_options jsonb default '{}')
returns table (worker_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_queues text[];
begin
  perform pawl_v1._check_options(p_options, '{queues}');
  v_queues := coalesce(pawl_v1._text_array_option(p_options, 'queues'), '{}');
  if cardinality(v_queues) > 1000 then
    raise exception 'a worker may name 1000 queues, these are %', cardinality(v_queues)
      using errcode = 'P4004';
  end if;
  perform pawl_v1._check_scope('queue', q.name)
     from unnest(v_queues) as q (name);
  perform pawl_v1._check_scope('worker name', p_name);
  if p_lease is null or p_lease not between interval '1 second' and interval '12 hours' then
    raise exception 'the lease must lie between 1 second and 12 hours, it is %', p_lease
      using errcode = 'P4004';
  end if;
  return query
  insert into pawl.worker as w (name, lease, queues)
  values (p_name, p_lease, to_jsonb(v_queues))
  returning w.id, '{}'::jsonb;
end
$$;

-- worker_attend takes the worker's presence lock on this session. The server frees it when the
-- session ends, so the death of a process is noticed within seconds, not at the end of its lease.
-- Use a direct connection that is kept for no other work. A pooler in transaction mode would leave
-- the lock with another client's connection.
--
-- From then on a free lock is evidence of death. If the connection is lost, report it in the next
-- worker_heartbeat, connect, and attend again.
--
-- Outcomes:
--   present  The session has the lock.
--   taken    Another session has it: your own old connection, not yet noticed as dead, or a sweep
--            that tests it. Ask again at the next heartbeat.
create or replace function pawl_v1.worker_attend(p_worker bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not pg_try_advisory_lock(1885435757, pawl_v1._presence(p_worker)) then
    return query
    select 'taken', '{}'::jsonb;
    return;
  end if;
  update pawl.worker as w
     set presence = true
   where w.id = p_worker;
  return query
  select 'present', '{}'::jsonb;
end
$$;

-- _presence returns the number of a worker's presence lock. If two live workers share a number (1
-- in 2^31), the presence of one hides the death of the other until its lease ends.
create or replace function pawl_v1._presence(p_worker bigint)
returns int
language sql
immutable
return (p_worker & 2147483647)::int;

-- worker_heartbeat renews the lease of everything the worker holds, by one narrow update. Send it
-- at a third of the lease. With presence, send it every 500 ms, because 1.5 s of silence count as a
-- sign of death. You may set synchronous_commit off for it: losing this write costs a takeover,
-- which the fence makes harmless.
--
-- The column recalled has jobs that were cancelled or recalled under the worker since the last
-- heartbeat. End their handlers. A job that the worker has claimed again since is left out.
-- detail.hidden, true, means that row level security applies to your role and may hide jobs or
-- lanes. Claims then find none and raise no error.
--
-- Outcomes:
--   alive  The lease is renewed.
--   lost   The row is gone: its jobs were taken back. Stop their handlers and register again.
--
-- Errors:
--   55P03  The row was locked for 2 s.
--   P4004  An argument.
--
-- Options:
--   presence  (boolean, default as before, at first false) The process holds its presence lock.
--             Send false when you have lost the lock's connection.
--   report    (object, default as before, at first none) Data for 'pawl doctor', as listed below.
--   told      (array, default none) detail.recalls of the last answer that arrived, or an empty
--             array. A recall is then repeated until a later heartbeat confirms it here. Without
--             'told' each is returned once.
--
-- Members of option report:
--   queues         An array of names.
--   drain_ms       How long the process takes to shut down, at most.
--   watched        Its pool notices commits that stopped waiting for a standby.
--   pooled         A pooler switches sessions under its presence connection, so it has no presence.
--   wakeups        Enqueues wake it: 'on', 'off' by its configuration, or 'none' without a presence
--                  connection.
--   woken, polled  How often it found jobs in a queue that was empty, after a notification and by a
--                  poll.
--   handlers       An object for each kind, with timeout_ms, 'runs' and p99_ms.
create or replace function pawl_v1.worker_heartbeat(p_worker bigint, p_options jsonb default '{}')
returns table (outcome text, recalled bigint[], detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_seen     pawl.worker;
  v_silence  interval := '0';
  v_recalled bigint[];
  v_recalls  bigint[];
begin
  perform pawl_v1._check_options(p_options, '{presence,report,told}');
  if jsonb_typeof(p_options -> 'told') <> 'array' then
    raise exception 'option told must be a JSON array, it is %', jsonb_typeof(p_options -> 'told')
      using errcode = 'P4004';
  end if;
  if jsonb_typeof(p_options -> 'report') <> 'object' then
    raise exception 'option report must be a JSON object, it is %', jsonb_typeof(p_options -> 'report')
      using errcode = 'P4004';
  end if;
  select w.*
    into v_seen
    from pawl.worker as w
   where w.id = p_worker
     for no key update;
  if not found then
    return query
    select 'lost', '{}'::bigint[], '{}'::jsonb;
    return;
  end if;
  if isfinite(v_seen.seen_at) then
    v_silence := clock_timestamp() - v_seen.seen_at;
  end if;
  if v_silence < v_seen.silence and v_seen.silence_at > clock_timestamp() - interval '1 hour' then
    v_silence := v_seen.silence;
  else
    v_seen.silence_at := clock_timestamp();
  end if;
  update pawl.worker as w
     set seen_at = clock_timestamp(),
         presence = coalesce((p_options ->> 'presence')::boolean, w.presence),
         suspected_at = null,
         silence = v_silence,
         silence_at = v_seen.silence_at,
         report = coalesce(p_options -> 'report', w.report)
   where w.id = p_worker;
  if jsonb_array_length(p_options -> 'told') > 0 then
    delete from pawl.recall as r
     where r.worker_id = p_worker
       and p_options -> 'told' @> to_jsonb(r.id);
  end if;
  with open as (
    select r.id, r.job_id, r.fence
      from pawl.recall as r
     where r.worker_id = p_worker
  ), named as (
    select o.job_id, max(o.id) as id
      from open as o
     where not exists (
             select
               from pawl.job as j
              where j.id = o.job_id
                and j.claimed_by = p_worker
                and j.fence > o.fence)
     group by o.job_id
  )
  select coalesce((select array_agg(n.job_id order by n.id) from named as n), '{}'),
         (select array_agg(o.id) from open as o)
    into v_recalled, v_recalls;
  if v_recalls is not null and not p_options ? 'told' then
    delete from pawl.recall as r
     where r.worker_id = p_worker
       and r.id = any (v_recalls);
  end if;
  return query
  select 'alive', v_recalled,
         case when v_recalls is not null and p_options ? 'told' then jsonb_build_object('recalls', v_recalls) else '{}' end
         || case when row_security_active('pawl.job') or row_security_active('pawl.lane') then '{"hidden": true}'::jsonb else '{}' end;
end
$$;

-- worker_leave ends a worker in good order. Its jobs are given back at once, uncharged, also those
-- of a claim whose answer it no longer waits for. Above READ COMMITTED such a claim cannot be seen.
-- Then the row stays, expired, for the next sweep.
--
-- Name in 'abandoned' the jobs whose handlers still run although you have told them to end. These
-- stay with the worker's row, and so do jobs whose transaction is open. The next sweep takes them,
-- counts a crash of each and gives the attempt back. So a job that makes its process stop is a dead
-- letter in the end.
--
-- The column released is the number of jobs that were given back. Jobs claimed without a worker
-- stay.
--
-- Outcomes:
--   left  The worker's row is gone.
--   busy  Jobs are left to the sweep, or there was no such worker.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   abandoned  (array of job ids, default none) Their handlers still run.
create or replace function pawl_v1.worker_leave(p_worker bigint, p_options jsonb default '{}')
returns table (outcome text, released int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_abandoned bigint[];
  v_released  int;
  v_queues    text[];
  v_left      boolean;
begin
  perform pawl_v1._check_options(p_options, '{abandoned}');
  v_abandoned := coalesce(pawl_v1._text_array_option(p_options, 'abandoned')::bigint[], '{}');
  -- Wait for a claim of this worker that may still be running after its client gave up. The next
  -- statement has a new snapshot and sees the claimed jobs. No claim can follow.
  perform from pawl.worker as w where w.id = p_worker for update;
  with held as (
    select j.id
      from pawl.job as j
     where j.claimed_by = p_worker
       and p_worker <> 0 -- claims without a worker belong to no worker
       and j.id <> all (v_abandoned)
     order by j.id
       for update skip locked
  ), released as (
    update pawl.job as j
       set status = 'pending',
           claimed_by = null,
           attempts = greatest(j.attempts - 1, 0),
           available_at = greatest(j.available_at, clock_timestamp())
      from held
     where j.id = held.id
       and j.status = 'processing'
       and j.claimed_by = p_worker
    returning j.queue
  )
  select count(*), array_agg(distinct r.queue)
    into v_released, v_queues
    from released as r;
  if v_released > 0 then
    perform pawl_v1._wake(v_queues);
  end if;
  if current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    delete from pawl.worker as w
     where w.id = p_worker
       and not exists (select from pawl.job as j where j.claimed_by = w.id);
  else
    -- The snapshot is older than that claim. Leave the row to the next sweep.
    update pawl.worker as w
       set seen_at = '-infinity'
     where w.id = p_worker
       and not exists (select from pawl.job as j where j.claimed_by = w.id);
  end if;
  v_left := found;
  if not v_left then
    update pawl.worker as w
       set seen_at = '-infinity'
     where w.id = p_worker;
  end if;
  return query
  select case when v_left then 'left' else 'busy' end, v_released, '{}'::jsonb;
end
$$;

-- worker_isolate reports that the worker's process runs only one attempt of one job. If the process
-- dies, job_sweep counts the death in crashes_alone too. Call it in its own transaction before a
-- job with crashes above 0 begins. Call it with p_alone false before other work begins beside that
-- job. The mark belongs to one attempt and ends with it. A call that arrives late does not touch
-- the mark of the next one.
--
-- Outcomes:
--   alone    The attempt is marked.
--   company  p_alone was false: the attempt is not marked.
--   lost     The worker has no row, or does not hold that attempt. Do not run it.
--
-- Errors:
--   55P03  The row was locked for 250 ms.
create or replace function pawl_v1.worker_isolate(p_worker bigint, p_job bigint, p_fence bigint, p_alone boolean default true)
returns table (outcome text, detail jsonb)
language plpgsql
set lock_timeout = '250ms'
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held boolean;
begin
  if p_alone then
    perform
       from pawl.job as j
      where j.id = p_job
        and j.claimed_by = p_worker
        and j.fence = p_fence;
    v_held := found;
  end if;
  update pawl.worker as w
     set alone_job = case when p_alone then p_job end,
         alone_fence = case when p_alone then p_fence end
   where w.id = p_worker
     and (v_held or not p_alone and w.alone_job = p_job and w.alone_fence = p_fence);
  return query
  select case when not p_alone then 'company' when found then 'alone' else 'lost' end, '{}'::jsonb;
end
$$;
