-- Claiming: many due jobs, or one by its id. The holder is a registered worker, whose heartbeat
-- renews the lease of all its jobs. With p_worker null the holder is any process that knows the
-- fence. The row then has its own lease, which job_renew renews.

-- _claim_begun locks the due jobs of a queue that were tried before, in the order of job_claim.
-- They have their own index: a draining queue may hold many jobs that must not be claimed.
create or replace function pawl_v1._claim_begun(p_queue text, p_limit int, p_kinds text[], p_due timestamptz, p_crashed boolean)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_found bigint[];
  v_solo  int;
begin
  select array_agg(c.id), array_position(array_agg(c.crashes > 0), true)
    into v_found, v_solo
    from (
      select j.id, j.crashes
        from pawl.job as j
       where j.queue = p_queue
         and j.status = 'pending'
         and (j.attempts > 0 or j.crashes > 0)
         and j.available_at <= p_due
         and (p_kinds is null or j.kind = any (p_kinds))
         and (p_crashed or j.crashes = 0)
       order by j.priority, j.available_at, j.id
       limit p_limit
         for update skip locked
    ) as c;
  return case when v_solo is null then v_found else v_found[1 : greatest(v_solo - 1, 1)] end;
end
$$;

-- job_claim claims up to p_limit (1 to 500) due jobs, most urgent first, then oldest. The rows come
-- in no particular order. Each gets fence + 1 and attempts + 1. No row means that no job is due.
-- detail of a job in a lane has 'lane' and 'position'.
--
-- A job with crashes above 0 was running when a process died. It is claimed alone, so that it
-- cannot crash its neighbours. Run it with no other job in the process, and report this with
-- worker_isolate. A paused queue returns no jobs. A draining queue returns only jobs that were
-- tried before: see queue_set.
--
-- p_worker is a worker of worker_register, whose heartbeat renews the lease of all it holds. Null
-- claims without one: each row then has a lease of its own, which job_renew renews. Both kinds of
-- holder may work side by side. See docs/concepts/leases.md.
--
-- Errors:
--   P4020  The worker's lease is lost. Register again.
--   P4004  An argument.
--
-- Options:
--   kinds     (array of texts, default all) Claim no other kinds. Each claim skips due jobs of
--             other kinds, so give rarely claimed kinds a queue of their own.
--   crashed   (boolean, default true) False skips jobs with crashes above 0, for a process that is
--             running one.
--   lease_ms  (1 s to 12 h, default 30 s) The lease of each row. With a worker it is refused
--             (P4004).
--   since     (array of four times or nulls, one a priority, default none) Skip jobs that were due
--             earlier. Under an old snapshot this keeps the claim fast. Also claim without it often
--             enough, or jobs that became due before it are never seen:
--             docs/decisions/0014-watermark.md.
create or replace function pawl_v1.job_claim(
  p_queue   text,
  p_worker  bigint,
  p_limit   int default 25,
  p_options jsonb default '{}'
)
returns table (
  id bigint, fence bigint, kind text, payload bytea, headers jsonb, attempts int, max_attempts int, crashes int,
  priority int, created_at timestamptz, available_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_due    timestamptz := clock_timestamp();
  v_lease  timestamptz;
  v_kinds  text[];
  v_crashed boolean;
  v_since  timestamptz[];
  v_mark   timestamptz;
  v_mode   text;
  v_ids    bigint[] := '{}';
  v_found  bigint[];
  v_solo   int; -- position in v_found of the first crashed job
begin
  perform pawl_v1._check_options(p_options, '{kinds,crashed,lease_ms,since}');
  if p_limit is null or p_limit not between 1 and 500 then
    raise exception 'limit must lie between 1 and 500, it is %', coalesce(p_limit::text, 'null')
      using errcode = 'P4004';
  end if;
  v_kinds := pawl_v1._text_array_option(p_options, 'kinds');
  v_crashed := coalesce((p_options ->> 'crashed')::boolean, true);
  v_since := pawl_v1._text_array_option(p_options, 'since')::timestamptz[];
  v_lease := pawl_v1._lease_of_claim(p_worker, p_options, v_due);
  select q.mode
    into v_mode
    from pawl.queue as q
   where q.name = p_queue;
  if v_mode = 'paused' then
    return;
  end if;

  if v_mode = 'draining' then
    v_ids := pawl_v1._claim_begun(p_queue, p_limit, v_kinds, v_due, v_crashed);
  else
    for v_priority in 1..4 loop
      v_mark := coalesce(v_since[v_priority], '-infinity');
      select array_agg(c.id), array_position(array_agg(c.crashes > 0), true)
        into v_found, v_solo
        from (
          select j.id, j.crashes
            from pawl.job as j
           where j.queue = p_queue
             and j.priority = v_priority
             and j.status = 'pending'
             and j.available_at between v_mark and v_due
             and (v_kinds is null or j.kind = any (v_kinds))
             and (v_crashed or j.crashes = 0)
           order by j.available_at, j.id
           limit p_limit - cardinality(v_ids)
             for update skip locked
        ) as c;
      if v_solo = 1 and cardinality(v_ids) = 0 then
        v_ids := v_found[1:1];
        exit;
      end if;
      -- After healthy jobs a crashed job waits; it is the first of the next claim.
      if v_solo is not null then
        v_found := v_found[1 : v_solo - 1];
      end if;
      v_ids := v_ids || v_found;
      exit when v_solo is not null or cardinality(v_ids) >= p_limit;
    end loop;
  end if;

  -- The rows are locked and were pending. A second test of status would let the planner walk index
  -- job_claim. The subselect hides the length of the array: for a visible long array the planner
  -- could read the whole table; for a hidden one it expects ten elements.
  return query
  update pawl.job as j
     set status = 'processing',
         fence = j.fence + 1,
         -- Jobs of unknown kinds are not dead-lettered, so bound it.
         attempts = least(j.attempts + 1, 32767),
         claimed_by = coalesce(p_worker, 0),
         lease_expires_at = v_lease
   where j.id = any (array(select unnest(v_ids)))
  returning j.id, j.fence, j.kind::text, j.payload, j.headers, j.attempts::int, j.max_attempts::int, j.crashes::int,
            j.priority::int, j.created_at, j.available_at,
            -- _lane_of inlined by hand: a call costs more than the lookup.
            case when j.lane_id is null then '{}' else (
              select jsonb_build_object('lane', l.name, 'position', j.position) from pawl.lane as l where l.id = j.lane_id) end;
end
$$;

-- job_claim_id claims one job by its id, for a message or a person that asks to run job 17. It
-- never waits. p_worker as of job_claim. Unless the outcome is 'claimed', nothing changed and the
-- job's columns are null, except available_at. A job with crashes above 0 must begin alone: see
-- worker_isolate.
--
-- Outcomes:
--   claimed  The job is yours, with fence + 1 and attempts + 1.
--   not_due  It is pending until available_at.
--   busy     An attempt holds it, or its row is locked now.
--   waiting  It is behind another job of its lane.
--   ended    detail.status is 'dead_letter', 'cancelled' or 'unknown'.
--   paused   It is due, but its queue is paused, or drains and the job was not tried before: see
--            queue_set.
--   absent   It finished, was discarded, or never existed.
--
-- Errors:
--   P4020  The worker's lease is lost. Register again.
--   P4004  An argument.
--
-- Options:
--   early     (boolean) Claim it although it is not due.
--   lease_ms  (1 s to 12 h, default 30 s) As of job_claim.
create or replace function pawl_v1.job_claim_id(p_id bigint, p_worker bigint, p_options jsonb default '{}')
returns table (
  outcome text, id bigint, fence bigint, queue text, kind text, payload bytea, headers jsonb, attempts int,
  max_attempts int, crashes int, priority int, created_at timestamptz, available_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_due     timestamptz := clock_timestamp();
  v_lease   timestamptz;
  v_job     pawl.job;
  v_outcome text;
begin
  perform pawl_v1._check_options(p_options, '{early,lease_ms}');
  v_lease := pawl_v1._lease_of_claim(p_worker, p_options, v_due);

  select j.*
    into v_job
    from pawl.job as j
   where j.id = p_id
     for update skip locked;
  if not found then
    perform from pawl.job as j where j.id = p_id;
    v_outcome := case when found then 'busy' else 'absent' end;
  else
    v_outcome := case
      when v_job.status = 'processing' then 'busy'
      when v_job.status = 'waiting' then 'waiting'
      when v_job.status <> 'pending' then 'ended'
      when v_job.available_at > v_due and not coalesce((p_options ->> 'early')::boolean, false) then 'not_due'
      when exists (
             select
               from pawl.queue as q
              where q.name = v_job.queue
                and (q.mode = 'paused' or q.mode = 'draining' and v_job.attempts = 0 and v_job.crashes = 0)) then 'paused'
      else 'claimed'
    end;
  end if;
  if v_outcome <> 'claimed' then
    return query
    select v_outcome, null::bigint, null::bigint, null::text, null::text, null::bytea, null::jsonb, null::int, null::int,
           null::int, null::int, null::timestamptz, v_job.available_at,
           jsonb_strip_nulls(jsonb_build_object('status', v_job.status))
             || case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unreplicated() end;
    return;
  end if;

  return query
  update pawl.job as j
     set status = 'processing',
         fence = j.fence + 1,
         attempts = least(j.attempts + 1, 32767),
         claimed_by = coalesce(p_worker, 0),
         lease_expires_at = v_lease
   where j.id = p_id
  returning 'claimed', j.id, j.fence, j.queue::text, j.kind::text, j.payload, j.headers, j.attempts::int, j.max_attempts::int,
            j.crashes::int, j.priority::int, j.created_at, j.available_at,
            case when j.lane_id is null then '{}' else pawl_v1._lane_of(j.lane_id, j.position) end;
end
$$;

-- _lease_of_claim checks the worker's lease and returns null. Without a worker it returns the end
-- of the row's own lease. The sweep locks the worker row FOR UPDATE before it touches the worker's
-- jobs, so no job can be claimed for a worker that is being swept.
create or replace function pawl_v1._lease_of_claim(p_worker bigint, p_options jsonb, p_now timestamptz)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_worker is null then
    return p_now + pawl_v1._int_option(p_options, 'lease_ms', 30000, 1000, 43200000) * interval '1 millisecond';
  end if;
  if p_options ->> 'lease_ms' is not null then
    raise exception 'lease_ms is for claims without a worker; worker % has a lease of its own', p_worker
      using errcode = 'P4004', hint = 'give the lease to worker_register';
  end if;
  perform
     from pawl.worker as w
    where w.id = p_worker
      and w.seen_at + w.lease > p_now
      for key share;
  if not found then
    raise exception 'worker % has lost its lease', p_worker
      using errcode = 'P4020', detail = 'worker', hint = 'register again and drop what this worker held';
  end if;
  return null;
end
$$;

-- job_renew renews the lease of a job that was claimed without a worker. Call it at a third of the
-- lease. A lease that has ended can be renewed until a sweep has noticed.
--
-- Outcomes:
--   renewed  The lease ends at lease_expires_at.
--
-- Errors:
--   P4020  You do not hold the job, or a worker does: its heartbeat renews it. DETAIL as of
--          job_hold.
--   55P03  Another transaction has had the row for more than 2 s. The state is not known yet.
--   P4004  An argument.
--
-- Options:
--   lease_ms  (1 s to 12 h, default 30 s) The new lease, from now.
create or replace function pawl_v1.job_renew(p_id bigint, p_fence bigint, p_options jsonb default '{}')
returns table (outcome text, lease_expires_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_until timestamptz;
begin
  perform pawl_v1._check_options(p_options, '{lease_ms}');
  update pawl.job as j
     set lease_expires_at = clock_timestamp()
           + pawl_v1._int_option(p_options, 'lease_ms', 30000, 1000, 43200000) * interval '1 millisecond'
   where j.id = p_id
     and j.status = 'processing'
     and j.fence = p_fence
     and j.lease_expires_at is not null -- testing claimed_by would let the planner walk job_held
  returning j.lease_expires_at
       into v_until;
  if not found then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select 'renewed', v_until, '{}'::jsonb;
end
$$;
