-- Claiming: many due jobs, or one by its id. The holder is a registered worker, whose heartbeat renews the lease of all it
-- holds, or (p_worker null) whoever knows the fence: then the row has a lease of its own, renewed by job_renew.

-- The due jobs of a queue that were tried before, locked, in the order in which job_claim takes them. They have an index of their own:
-- a queue that drains may hold any number of jobs that are not to be claimed.
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

-- Claims up to p_limit due jobs, most urgent first. Each gets fence + 1 and attempts + 1.
-- A job that was running when a process died is claimed alone, so that a poison job cannot take its neighbours to the
-- dead letters with it: run it with nothing else in the process.
-- Of a queue that is paused it claims nothing, of one that drains what was tried before: see queue_set.
--
-- options: kinds array of text (claim no other; default all), crashed boolean (default true; false leaves jobs that were running
-- when a process died where they are: for a process that has one in hand), lease_ms (of each row if p_worker is null, default 30000),
-- since array of four times, one a priority, null for none: look at no job due before. Where an old snapshot keeps the dead
-- entries of the index alive, a claim that starts behind them stays fast. What a caller passes by so it must look for itself,
-- with a claim without since, often enough: jobs enqueued in transactions that stayed open, rows that were locked.
-- detail: of a job in a lane, lane and position.
-- P4020: the worker's lease is gone; register again.
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
  v_solo   int; -- the place in v_found of the first that has crashed
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
      -- Behind healthy work a crashed job waits for its own turn; it stays first in line for the next claim.
      if v_solo is not null then
        v_found := v_found[1 : v_solo - 1];
      end if;
      v_ids := v_ids || v_found;
      exit when v_solo is not null or cardinality(v_ids) >= p_limit;
    end loop;
  end if;

  -- The rows are locked and were pending when they were. Testing that again would let the planner walk job_claim. An array that
  -- it can see might be long enough to make it read the whole table; of one that it cannot, it expects ten elements.
  return query
  update pawl.job as j
     set status = 'processing',
         fence = j.fence + 1,
         attempts = least(j.attempts + 1, 32767), -- a kind nobody dead-letters must not overflow
         claimed_by = coalesce(p_worker, 0),
         lease_expires_at = v_lease
   where j.id = any (array(select unnest(v_ids)))
  returning j.id, j.fence, j.kind::text, j.payload, j.headers, j.attempts::int, j.max_attempts::int, j.crashes::int,
            j.priority::int, j.created_at, j.available_at,
            case when j.lane_id is null then '{}' else ( -- _lane_of, but a call costs more than the look
              select jsonb_build_object('lane', l.name, 'position', j.position) from pawl.lane as l where l.id = j.lane_id) end;
end
$$;

-- Claims one job by its id, for a message that says "process job 17". It never waits.
--
-- options: early boolean (claim it before it is due), lease_ms as of job_claim.
-- outcome 'claimed' with the job's columns; else they are null and nothing changed: 'not_due' (available_at says when),
-- 'busy' (held by an attempt, or its row is locked), 'ended' (detail.status: cancelled, dead_letter, unknown), 'waiting'
-- (others of its lane are ahead), 'paused' (its queue is, or drains and the job has not been tried before), 'absent' (finished,
-- discarded, or never there).
-- P4020: the worker's lease is gone; register again.
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
             || case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unproved() end;
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

-- Proves the worker's lease and returns null, or the end of a lease of the row's own if there is no worker. The sweep
-- takes the worker row FOR UPDATE before it touches the worker's jobs: no job can be claimed for one being buried.
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

-- Renews the lease of a job claimed without a worker; call it well before it ends. options: lease_ms (default 30000).
-- outcome 'renewed'. P4020: not the holder any more, or a worker is: the worker's heartbeat renews then.
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
     and j.lease_expires_at is not null -- a test of claimed_by would let the planner walk job_held
  returning j.lease_expires_at
       into v_until;
  if not found then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select 'renewed', v_until, '{}'::jsonb;
end
$$;
