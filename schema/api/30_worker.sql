-- Workers: one row per process incarnation, which carries the lease of everything the process has claimed.

-- Registers one process incarnation. p_lease: how long it may stay silent before its jobs are taken back; 1 s to 12 h.
-- options: queues, an array of up to 1000 names: what it works on. Its death is then known as one of these queues: see queue_death.
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

-- Takes the worker's presence lock on this session, which must be a direct connection kept for nothing else: a pooler in
-- transaction mode would leave the lock with a stranger's connection. The server frees it when the process dies.
-- From now on a free lock is evidence. Should the session end, tell the next heartbeat.
-- outcome 'present', or 'taken': another session has it (a sweep looking, or the old connection, not yet noticed as dead).
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

-- The number of a worker's presence lock. Two workers may share one in 2^31: then one's presence hides the other's death
-- until its lease is over, no more.
create or replace function pawl_v1._presence(p_worker bigint)
returns int
language sql
immutable
return (p_worker & 2147483647)::int;

-- Renews the lease of everything the worker holds. Losing this write in a crash of the server costs a takeover that the
-- fence makes harmless, so synchronous_commit may be off for it.
--
-- options: presence boolean (the process holds its presence lock), report object (what pawl doctor is to know: queues, an array of
-- names; drain_ms; watched; wakeups: on, off or none; woken, polled; handlers, an object of objects by kind, with timeout_ms, runs and p99_ms);
-- default of both: as it was. told array (detail.recalls of the last answer that arrived, or []: those are forgotten, and what this answer
-- names is named again until a later beat says that it arrived; default: it is forgotten at once, and lost with the answer).
-- outcome 'alive', or 'lost': its jobs were taken back; stop their handlers and register again.
-- recalled: jobs that were cancelled or recalled under it since the last beat; end their handlers. Each is named once, with told until it
-- has arrived, and not at all if the worker has claimed it again meanwhile.
-- detail.hidden, true: row level security is on for this role and may hide jobs or lanes, so they wait.
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

-- Ends a worker in good order: what it still holds goes back at once, uncharged, and wakes other workers. A job whose transaction is still open
-- stays with the worker row until the sweep.
create or replace function pawl_v1.worker_leave(p_worker bigint)
returns table (outcome text, released int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_released int;
  v_queues   text[];
begin
  -- A claim of this worker may be under way, whose answer nobody waits for any more. It has the row until it commits; what it
  -- claimed is seen below, because each statement has a snapshot of its own, and none can follow.
  perform from pawl.worker as w where w.id = p_worker for update;
  with held as (
    select j.id
      from pawl.job as j
     where j.claimed_by = p_worker
       and p_worker <> 0 -- the jobs claimed without a worker are not one worker's to leave
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
    -- One snapshot for all statements, older than what was waited for: what that claimed cannot be seen. The next sweep sees it.
    update pawl.worker as w
       set seen_at = '-infinity'
     where w.id = p_worker
       and not exists (select from pawl.job as j where j.claimed_by = w.id);
  end if;
  return query
  select case when found then 'left' else 'busy' end, v_released, '{}'::jsonb;
end
$$;

-- Says whether the worker's process has nothing in hand but one attempt of a job, which p_fence names. The sweep believes the last
-- answer: a death is then counted in crashes_alone too. Call it, in a transaction of its own, before such an attempt begins, and
-- with p_alone false before anything else begins beside it. The end of the attempt ends the mark. To take a mark away names its
-- attempt: a call that arrives late leaves the mark of the next one.
-- outcome 'alone'; 'company' with p_alone false; 'lost': the worker has no row, or it does not hold that attempt.
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
