-- Durable work: enqueue, claim, hold, finish, fail, release, sweep.
--
--                        claim: fence + 1, attempts + 1
--   enqueue ──▶ pending ───────────────────────────────▶ processing ──finish──▶ (row deleted)
--                 ▲                                        │   │
--                 ├──────── fail, attempts left ───────────┘   │
--                 ├──────── release: attempts - 1 ─────────────┤
--                 └──────── sweep: crashes + 1 ────────────────┤
--                                                              └── fail or sweep, none left ──▶ dead_letter

create or replace function pawl_v1._job_insert(p_queue text, p_kind text, p_args bytea, p_options jsonb, p_id bigint default null)
returns pawl.job
language plpgsql
as $$
declare
  v_job pawl.job;
begin
  perform pawl_v1._check_scope('queue', p_queue);
  perform pawl_v1._check_scope('kind', p_kind);
  if p_args is null or octet_length(p_args) > 4194304 then
    raise exception 'args must have at most 4194304 octets, they have %', coalesce(octet_length(p_args)::text, 'none')
      using errcode = 'P4004', hint = 'store a large payload elsewhere and enqueue its reference';
  end if;
  if jsonb_typeof(p_options -> 'headers') not in ('object', 'null') then
    raise exception 'headers must be a JSON object, they are %', jsonb_typeof(p_options -> 'headers')
      using errcode = 'P4004';
  end if;
  insert into pawl.job as j (id, queue, kind, args, headers, priority, attempts, crashes, max_attempts, available_at)
  overriding system value
  values (
    coalesce(p_id, nextval('pawl.job_id_seq')), p_queue, p_kind, p_args, p_options -> 'headers',
    pawl_v1._int_option(p_options, 'priority', 2, 1, 4),
    pawl_v1._int_option(p_options, 'attempts', 0, 0, 1000),
    pawl_v1._int_option(p_options, 'crashes', 0, 0, 1000),
    pawl_v1._int_option(p_options, 'max_attempts', 25, 1, 1000),
    clock_timestamp() + pawl_v1._int_option(p_options, 'retry_in_ms', 0, 0, 31536000000) * interval '1 millisecond'
  )
  returning j.*
       into v_job;
  return v_job;
end
$$;

-- Appends to the bounded error history: the last 10 errors, each cut to 4,000 characters.
create or replace function pawl_v1._push_error(p_errors jsonb, p_error jsonb, p_attempt int)
returns jsonb
language sql
stable
as $$
  select case when p_error is null then p_errors else (
    select jsonb_agg(e.entry order by e.n)
      from (
        select h.entry, h.n
          from jsonb_array_elements(
                 coalesce(p_errors, '[]') || jsonb_build_array(jsonb_build_object(
                   'at', clock_timestamp(),
                   'attempt', p_attempt,
                   'code', p_error ->> 'code',
                   'error', left(p_error ->> 'error', 4000)))
               ) with ordinality as h (entry, n)
         order by h.n desc
         limit 10
      ) as e
  ) end
$$;

-- Raises P4020 and says in DETAIL what became of the job: absent (finished by a successor, by your own lost COMMIT,
-- or discarded), cancelled, dead_letter, or superseded.
create or replace function pawl_v1._raise_fence_lost(p_id bigint, p_fence bigint)
returns void
language plpgsql
as $$
declare
  v_status text;
begin
  select case when j.status in ('cancelled', 'dead_letter') then j.status else 'superseded' end
    into v_status
    from pawl.job as j
   where j.id = p_id;
  raise exception 'job % is not held with fence %', p_id, p_fence
    using errcode = 'P4020',
          detail = coalesce(v_status, 'absent'),
          hint = 'a newer attempt owns this job or it has ended; drop this attempt';
end
$$;

-- Enqueues one job, in the caller's transaction if there is one.
--
-- options: key text (the same key, queue and payload enqueue once), hash text (64 hex digits; default: kind and args),
-- key_ttl_ms (memory of the key, default 24 h), priority 1..4 (default 2), retry_in_ms (start no sooner), max_attempts
-- (default 25), headers object.
-- outcome 'enqueued' or 'duplicate' (job_id is the first one's, which may have finished). P4002: the key came with
-- another payload.
create or replace function pawl_v1.job_enqueue(
  p_queue   text,
  p_kind    text,
  p_args    bytea,
  p_options jsonb default '{}'
)
returns table (outcome text, job_id bigint, detail jsonb)
language plpgsql
as $$
declare
  v_id   bigint := nextval('pawl.job_id_seq');
  v_key  text := p_options ->> 'key';
  v_hash bytea;
  v_seen pawl.job_key;
begin
  perform pawl_v1._check_options(p_options, '{key,hash,key_ttl_ms,priority,retry_in_ms,max_attempts,headers}');
  if v_key is not null then
    perform pawl_v1._check_scope('queue', p_queue);
    perform pawl_v1._check_key('key', v_key);
    v_hash := coalesce(
      decode(p_options ->> 'hash', 'hex'),
      sha256(int8send(octet_length(p_kind)) || convert_to(p_kind, 'UTF8') || int8send(octet_length(p_args)) || p_args));
    perform pawl_v1._check_hash(v_hash);
    v_seen := pawl_v1._job_key_claim(p_queue, v_key, v_hash, v_id,
      pawl_v1._int_option(p_options, 'key_ttl_ms', 86400000, 1000, 315360000000) * interval '1 millisecond');
    if v_seen.job_id <> v_id then
      return query
      select 'duplicate', v_seen.job_id, '{}'::jsonb;
      return;
    end if;
  end if;
  perform pawl_v1._job_insert(p_queue, p_kind, p_args, p_options, v_id);
  return query
  select 'enqueued', v_id, '{}'::jsonb;
end
$$;

-- Insert or observe a key; the row returned says who owns it.
create or replace function pawl_v1._job_key_claim(p_queue text, p_key text, p_hash bytea, p_job_id bigint, p_ttl interval)
returns pawl.job_key
language plpgsql
as $$
declare
  v_seen pawl.job_key;
begin
  for v_try in 1..3 loop
    insert into pawl.job_key as k (queue, key, hash, job_id, expires_at)
    values (p_queue, p_key, p_hash, p_job_id, clock_timestamp() + p_ttl)
    on conflict do nothing
    returning k.*
    into v_seen;
    if found then
      return v_seen;
    end if;

    select k.*
      into v_seen
      from pawl.job_key as k
     where k.queue = p_queue
       and k.key = p_key;
    if found then
      if v_seen.hash <> p_hash then
        raise exception 'key % of queue % came before with a different payload', p_key, p_queue
          using errcode = 'P4002',
                detail = json_build_object('stored_hash', encode(v_seen.hash, 'hex'), 'given_hash', encode(p_hash, 'hex')),
                hint = 'use a new key for a new intent, or fix the caller that changes its payload between retries';
      end if;
      return v_seen;
    end if;
  end loop;
  raise exception 'key % of queue % keeps appearing and disappearing', p_key, p_queue
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- Claims up to p_limit due jobs for a registered worker, most urgent first. Each gets fence + 1 and attempts + 1.
-- A job that was running when a process died is claimed alone, so that a poison job cannot take its neighbours to the
-- dead letters with it: run it with nothing else in the process.
-- P4020: the worker's lease is gone; register again.
create or replace function pawl_v1.job_claim(
  p_queue   text,
  p_worker  bigint,
  p_limit   int default 25,
  p_options jsonb default '{}'
)
returns table (
  id bigint, fence bigint, kind text, args bytea, headers jsonb, attempts int, max_attempts int, crashes int,
  priority int, created_at timestamptz, detail jsonb
)
language plpgsql
as $$
declare
  v_due    timestamptz := clock_timestamp();
  v_ids    bigint[] := '{}';
  v_found  bigint[];
  v_solo   bigint;
begin
  perform pawl_v1._check_options(p_options, '{}');
  if p_limit not between 1 and 500 then
    raise exception 'limit must lie between 1 and 500, it is %', p_limit
      using errcode = 'P4004';
  end if;
  -- The sweep takes this row FOR UPDATE before it touches the worker's jobs: no job can be claimed for a worker that
  -- is being buried.
  perform
     from pawl.worker as w
    where w.id = p_worker
      and w.seen_at + w.lease > v_due
      for key share;
  if not found then
    raise exception 'worker % has lost its lease', p_worker
      using errcode = 'P4020', detail = 'worker', hint = 'register again and drop what this worker held';
  end if;

  for v_priority in 1..4 loop
    v_found := array(
      select j.id
        from pawl.job as j
       where j.queue = p_queue
         and j.priority = v_priority
         and j.status = 'pending'
         and j.available_at <= v_due
       order by j.available_at, j.id
       limit p_limit - cardinality(v_ids)
         for update skip locked);
    select s.id
      into v_solo
      from unnest(v_found) with ordinality as s (id, n)
      join pawl.job as j on j.id = s.id
     where j.crashes > 0
     order by s.n
     limit 1;
    if v_solo is not null and cardinality(v_ids) = 0 and v_solo = v_found[1] then
      v_ids := array[v_solo];
      exit;
    end if;
    -- Behind healthy work a crashed job waits for its own turn; it stays first in line for the next claim.
    if v_solo is not null then
      v_found := v_found[1 : array_position(v_found, v_solo) - 1];
    end if;
    v_ids := v_ids || v_found;
    exit when v_solo is not null or cardinality(v_ids) >= p_limit;
  end loop;

  -- The rows are locked and were pending when they were. Testing that again would let the planner walk job_claim.
  return query
  update pawl.job as j
     set status = 'processing',
         fence = j.fence + 1,
         attempts = least(j.attempts + 1, 32767), -- a kind nobody dead-letters must not overflow
         claimed_by = p_worker
   where j.id = any (v_ids)
  returning j.id, j.fence, j.kind, j.args, j.headers, j.attempts::int, j.max_attempts::int, j.crashes::int,
            j.priority::int, j.created_at, '{}'::jsonb;
end
$$;

-- Locks a claimed job and proves the fence. Call it first in the transaction that will do the work: a stale attempt
-- then stops before it writes, and nobody can take the job over while the transaction is open.
-- outcome 'held'. P4020: see _raise_fence_lost. 55P03: another transaction holds the row; nothing is known yet.
create or replace function pawl_v1.job_hold(p_id bigint, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_job pawl.job;
begin
  select j.*
    into v_job
    from pawl.job as j
   where j.id = p_id
     for update;
  if v_job.status is distinct from 'processing' or v_job.fence <> p_fence then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select 'held', '{}'::jsonb;
end
$$;

-- Ends a job well: the row is deleted. In the handler's transaction the work and its end commit together.
-- outcome 'finished'. P4020 aborts the transaction, so a stale holder loses its writes together with its claim.
create or replace function pawl_v1.job_finish(p_id bigint, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set lock_timeout = '2s'
as $$
begin
  delete from pawl.job as j
   where j.id = p_id
     and j.status = 'processing'
     and j.fence = p_fence;
  if not found then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select 'finished', '{}'::jsonb;
end
$$;

-- Ends an attempt badly. The job waits retry_in_ms and becomes pending again, or goes to the dead letters if its
-- attempts are spent or final is true; it keeps its payload and its last errors either way.
--
-- p_error: {"error": text, "code": SQLSTATE}. options: retry_in_ms (default 1000), final boolean.
-- outcome 'retry' or 'dead_letter'. P4020: not the holder.
create or replace function pawl_v1.job_fail(p_id bigint, p_fence bigint, p_error jsonb, p_options jsonb default '{}')
returns table (outcome text, available_at timestamptz, attempts int, detail jsonb)
language plpgsql
set lock_timeout = '2s'
as $$
declare
  v_job pawl.job;
begin
  perform pawl_v1._check_options(p_options, '{retry_in_ms,final}');
  update pawl.job as j
     set status = case
           when coalesce((p_options ->> 'final')::boolean, false) or j.attempts >= j.max_attempts then 'dead_letter'
           else 'pending'
         end,
         claimed_by = null,
         available_at = clock_timestamp()
           + pawl_v1._int_option(p_options, 'retry_in_ms', 1000, 0, 31536000000) * interval '1 millisecond',
         last_errors = pawl_v1._push_error(j.last_errors, p_error, j.attempts)
   where j.id = p_id
     and j.status = 'processing'
     and j.fence = p_fence
  returning j.*
       into v_job;
  if not found then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select case v_job.status when 'dead_letter' then 'dead_letter' else 'retry' end,
         v_job.available_at, v_job.attempts::int, '{}'::jsonb;
end
$$;

-- Gives a claimed job back at once without charging the attempt: on shutdown, when the database was away, or when the
-- reply to COMMIT was lost. In the last case it is the question and the answer in one: whatever the old transaction
-- did, after this call the job is either pending again or was not ours to give back.
-- outcome 'released'; or 'not_held', nothing changed (finished, taken over, or ended otherwise).
create or replace function pawl_v1.job_release(p_id bigint, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set lock_timeout = '2s'
as $$
begin
  update pawl.job as j
     set status = 'pending',
         claimed_by = null,
         attempts = greatest(j.attempts - 1, 0),
         available_at = greatest(j.available_at, clock_timestamp())
   where j.id = p_id
     and j.status = 'processing'
     and j.fence = p_fence;
  return query
  select case when found then 'released' else 'not_held' end, '{}'::jsonb;
end
$$;
