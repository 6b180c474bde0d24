-- Workers and the sweep that follows their death.

-- Registers one process incarnation. p_lease: how long it may stay silent before its jobs are taken back; 1 s to 12 h.
create or replace function pawl_v1.worker_register(p_name text, p_lease interval default '30 seconds')
returns table (worker_id bigint, detail jsonb)
language plpgsql
as $$
begin
  perform pawl_v1._check_scope('worker name', p_name);
  if p_lease is null or p_lease not between interval '1 second' and interval '12 hours' then
    raise exception 'the lease must lie between 1 second and 12 hours, it is %', p_lease
      using errcode = 'P4004';
  end if;
  return query
  insert into pawl.worker as w (name, lease)
  values (p_name, p_lease)
  returning w.id, '{}'::jsonb;
end
$$;

-- Renews the lease of everything the worker holds. outcome 'alive', or 'lost': its jobs were taken back; stop their
-- handlers and register again.
create or replace function pawl_v1.worker_heartbeat(p_worker bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set lock_timeout = '2s'
as $$
begin
  update pawl.worker as w
     set seen_at = clock_timestamp()
   where w.id = p_worker;
  return query
  select case when found then 'alive' else 'lost' end, '{}'::jsonb;
end
$$;

-- Ends a worker in good order: what it still holds goes back at once, uncharged. A job whose transaction is still open
-- stays with the worker row until the sweep.
create or replace function pawl_v1.worker_leave(p_worker bigint)
returns table (outcome text, released int, detail jsonb)
language plpgsql
as $$
declare
  v_released int;
begin
  with held as (
    select j.id
      from pawl.job as j
     where j.claimed_by = p_worker
     order by j.id
       for update skip locked
  )
  update pawl.job as j
     set status = 'pending',
         claimed_by = null,
         attempts = greatest(j.attempts - 1, 0),
         available_at = greatest(j.available_at, clock_timestamp())
    from held
   where j.id = held.id
     and j.status = 'processing'
     and j.claimed_by = p_worker;
  get diagnostics v_released = row_count;
  delete from pawl.worker as w
   where w.id = p_worker
     and not exists (select from pawl.job as j where j.claimed_by = p_worker);
  return query
  select case when found then 'left' else 'busy' end, v_released, '{}'::jsonb;
end
$$;

-- Takes back the jobs of workers whose lease ran out: crashes + 1, and pending again after a jittered pause, or to the
-- dead letters when attempts or crashes are spent. Only kinds in p_kinds are dead-lettered: a sweeper does not decide
-- on work it does not know.
-- The advisory lock saves work, nothing else: two sweeps at once are safe.
--
-- options: max_crashes (default 4), limit (jobs a call, default 1000).
-- outcome 'swept' or 'busy' (another sweep is running).
create or replace function pawl_v1.job_sweep(p_kinds text[], p_options jsonb default '{}')
returns table (outcome text, requeued int, dead_lettered int, workers int, detail jsonb)
language plpgsql
as $$
declare
  v_max_crashes int := pawl_v1._int_option(p_options, 'max_crashes', 4, 1, 1000);
  v_limit       int := pawl_v1._int_option(p_options, 'limit', 1000, 1, 100000);
  v_gone        bigint[];
  v_requeued    int;
  v_dead        int;
  v_workers     int;
begin
  perform pawl_v1._check_options(p_options, '{max_crashes,limit}');
  if not pg_try_advisory_xact_lock(1885435756, 1) then -- 'pawl' in ASCII, then the lock's number
    return query
    select 'busy', 0, 0, 0, '{}'::jsonb;
    return;
  end if;

  v_gone := array(
    select w.id
      from pawl.worker as w
     where w.seen_at + w.lease < clock_timestamp()
     order by w.id
     limit 100
       for update skip locked);

  with orphan as (
    select j.id
      from pawl.job as j
     where j.claimed_by = any (v_gone)
     order by j.id
     limit v_limit
       for update skip locked -- a locked row has a live holder
  ), swept as (
    update pawl.job as j
       set status = case
             when (j.crashes + 1 >= v_max_crashes or j.attempts >= j.max_attempts) and j.kind = any (p_kinds) then 'dead_letter'
             else 'pending'
           end,
           claimed_by = null,
           crashes = least(j.crashes + 1, 1000), -- a kind nobody dead-letters must not overflow
           available_at = clock_timestamp() + random() * power(2, least(j.crashes, 6)) * interval '100 milliseconds',
           last_errors = pawl_v1._push_error(j.last_errors,
             jsonb_build_object('code', 'crash', 'error', 'the worker died or froze past its lease'), j.attempts)
      from orphan
     where j.id = orphan.id
       and j.status = 'processing'
       and j.claimed_by = any (v_gone)
    returning j.status
  )
  select count(*) filter (where s.status = 'pending'), count(*) filter (where s.status = 'dead_letter')
    into v_requeued, v_dead
    from swept as s;

  delete from pawl.worker as w
   where w.id = any (v_gone)
     and not exists (select from pawl.job as j where j.claimed_by = w.id);
  get diagnostics v_workers = row_count;
  return query
  select 'swept', v_requeued, v_dead, v_workers, '{}'::jsonb;
end
$$;
