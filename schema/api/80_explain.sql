-- The history of one key, from all tables and the audit, in time order.

-- _names returns the first p_limit values of the leading primary key column of a table. Each costs
-- one index probe, for any number of rows.
create or replace function pawl_v1._names(p_table text, p_column text, p_limit int)
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_names text[];
begin
  execute format($query$
    with recursive names (name) as (
      (select t.%2$I::text from pawl.%1$I as t order by t.%2$I limit 1)
       union all
      select (select t.%2$I::text from pawl.%1$I as t where t.%2$I > n.name order by t.%2$I limit 1)
        from names as n
       where n.name is not null
    )
    select array(select n.name from names as n where n.name is not null limit $1) $query$, p_table, p_column)
    into v_names
   using p_limit;
  return v_names;
end
$$;

-- _story_of_jobs returns what is known of some jobs. Without a row it finished or was discarded.
create or replace function pawl_v1._story_of_jobs(p_jobs bigint[])
returns table (at timestamptz, kind text, scope text, key text, event text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
begin
  return query
  select e.at, 'job', j.queue::text, j.id::text, e.event, e.detail
    from unnest(p_jobs) as i (id)
   cross join lateral (select o.* from pawl.job as o where o.id = i.id limit 1) as j
    left join pawl.worker as w on w.id = j.claimed_by
    left join pawl.lane as l on l.id = j.lane_id
    left join pawl.job as h on h.lane_id = j.lane_id and h.lane_head and h.id <> j.id
   cross join lateral (
          select j.created_at, 'enqueued', jsonb_build_object('kind', j.kind, 'priority', j.priority, 'payload_octets', octet_length(j.payload))
           union all
          select (r.error ->> 'at')::timestamptz, 'failed', r.error - 'at' - 'lease_ended_at'
            from jsonb_array_elements(coalesce(nullif(j.last_errors, 'null'), '[]')) as r (error)
           union all
          select (r.error ->> 'lease_ended_at')::timestamptz, 'lease_ended', jsonb_strip_nulls(jsonb_build_object(
                   'attempt', r.error -> 'attempt', 'fence', r.error -> 'fence', 'worker', r.error -> 'worker'))
            from jsonb_array_elements(coalesce(nullif(j.last_errors, 'null'), '[]')) as r (error)
           where r.error ? 'lease_ended_at'
           union all
          -- In this status since its last error. Without an error it was stored so.
          select case when j.status in ('dead_letter', 'unknown')
                      then coalesce((nullif(j.last_errors, 'null') -> -1 ->> 'at')::timestamptz, j.created_at)
                      else clock_timestamp()
                 end, j.status::text, jsonb_strip_nulls(jsonb_build_object(
                   'attempts', j.attempts, 'max_attempts', j.max_attempts, 'crashes', nullif(j.crashes, 0), 'fence', j.fence,
                   'worker', w.name, 'lease_expires_at', coalesce(w.seen_at + w.lease, j.lease_expires_at),
                   'lane', l.name, 'lane_head', h.id, 'lane_head_status', h.status))
           union all
          select j.available_at, 'due', '{}'
           where j.status = 'pending'
             and j.available_at > clock_timestamp()) as e (at, event, detail);
  return query
  select e.at, 'job', a.queue::text, a.id::text, e.event, e.detail
    from unnest(p_jobs) as i (id)
   cross join lateral (select o.* from pawl_v1.archive as o where o.id = i.id limit 1) as a
   cross join lateral (
          values (a.created_at, 'enqueued', jsonb_build_object('kind', a.kind, 'priority', a.priority, 'payload_octets', octet_length(a.payload))),
                 (a.finished_at, 'succeeded', jsonb_strip_nulls(jsonb_build_object(
                   'attempts', a.attempts, 'crashes', nullif(a.crashes, 0), 'fence', a.fence, 'lane', a.lane)))) as e (at, event, detail);
  return query
  select w.at, w.kind, w.scope::text, w.key::text, 'stale_write_refused', jsonb_build_object('fence', w.fence, 'worker', w.worker)
    from unnest(p_jobs) as i (id)
   cross join lateral (select o.* from pawl.stale_write as o where o.kind = 'job' and o.key = i.id::text order by o.fence limit 100) as w;
  return query
  select null::timestamptz, 'job', null, i.id::text, 'gone', '{"hint": "it finished, or was discarded: no row of it is kept"}'::jsonb
    from unnest(p_jobs) as i (id)
   where not exists (select from pawl.job as j where j.id = i.id)
     and not exists (select from pawl_v1.archive as a where a.id = i.id);
end
$$;

-- _refused_of returns jobs of deliveries that were refused under a key, mostly because it came with
-- another payload. The inbox has them under a generated key. For dead, unknown and cancelled jobs
-- there is an index. Of those being retried, it finds the ones among the first 500 such keys.
create or replace function pawl_v1._refused_of(p_key text, p_consumers text[], p_queues text[])
returns setof bigint
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_consumers text[] := array(
    select s.name from unnest(p_consumers) as s (name)
     union
    select substr(s.name, length('inbox/') + 1) from unnest(p_queues) as s (name) where s.name like 'inbox/%');
begin
  return query
  select f.id
    from unnest(v_consumers) as s (name)
   cross join lateral (
          select j.id
            from pawl.job as j
           where j.queue = 'inbox/' || s.name
             and left(j.headers ->> 'pawl-key', 255) collate "C" = p_key
             and j.headers ->> 'pawl-key' is not null
             and j.status in ('dead_letter', 'unknown', 'cancelled')
           order by j.id desc
           limit 100) as f;
  return query
  select j.id
    from (
      select i.job_id
        from unnest(v_consumers) as s (name)
       cross join lateral (
              select o.job_id
                from pawl.inbox as o
               where o.consumer = s.name
                 and o.key >= 'pawl/'
                 and o.key < 'pawl0'
               order by o.key
               limit 500) as i
       limit 500) as n (id)
   cross join lateral (select o.id, o.headers from pawl.job as o where o.id = n.id limit 1) as j
   where j.headers ->> 'pawl-key' = p_key;
end
$$;

-- _steps_of returns the steps that belong to a key or to some jobs.
create or replace function pawl_v1._steps_of(p_key text, p_jobs bigint[], p_owners text[])
returns setof pawl.step
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
begin
  return query
  select e.*
    from unnest(p_owners) as s (name)
   cross join lateral (select o.* from pawl.step as o where o.scope = s.name and o.key = p_key order by o.step limit 100) as e;
  return query -- a delivery with a second name has its steps under that
  select e.*
    from unnest(p_owners) as s (name)
   cross join lateral (
          select j.headers ->> 'pawl-step-key'
            from pawl.job as j
           where j.id = any (p_jobs)
             and j.queue = s.name
           union
          select a.headers ->> 'pawl-step-key'
            from unnest(p_jobs) as i (id)
           cross join lateral (select o.* from pawl_v1.archive as o where o.id = i.id limit 1) as a
           where a.queue = s.name
           union
          select d.stored_as ->> 'semantic'
            from pawl.delivery as d
           where d.consumer = substr(s.name, length('inbox/') + 1)
             and d.key = p_key) as n (key)
   cross join lateral (select o.* from pawl.step as o where o.scope = s.name and o.key = n.key order by o.step limit 100) as e
   where s.name like 'inbox/%'
     and n.key <> p_key;
  return query -- the key of a job's step is the job's id, '@' and the time of enqueueing
  select e.*
    from unnest(p_owners) as s (name)
   cross join unnest(p_jobs) as i (id)
   cross join lateral (
          select o.*
            from pawl.step as o
           where o.scope = s.name
             and o.key > i.id || '@'
             and o.key < i.id || 'A'
           order by o.key, o.step
           limit 100) as e
   where s.name like 'job/%';
end
$$;

-- _key_of_job returns the enqueue key of a job that was enqueued at p_at. The key was inserted just
-- before, in the same call, so the age index finds it. Without statistics the planner would scan
-- another index from its start, so only bitmap scans are enabled.
create or replace function pawl_v1._key_of_job(p_job bigint, p_at timestamptz)
returns setof pawl.job_key
language plpgsql
set search_path = pg_catalog, pg_temp
stable
set enable_indexscan = off
set enable_seqscan = off
as $$
begin
  return query
  select k.*
    from pawl.job_key as k
   where k.created_at between p_at - interval '1 second' and p_at
     and k.job_id = p_job
   limit 1;
end
$$;

-- _story returns the rows of explain, unordered. p_scopes, p_consumers, p_queues, p_owners (scopes
-- of steps): where to look for the key. p_scope: the only one of them, or null.
create or replace function pawl_v1._story(p_key text, p_scope text, p_scopes text[], p_consumers text[], p_queues text[], p_owners text[])
returns table (at timestamptz, kind text, scope text, key text, event text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  -- the queues of p_scope
  v_within text[] := case when p_scope is not null then array[p_scope, 'inbox/' || p_scope, 'outbox/' || p_scope] end;
  v_jobs   bigint[] := '{}';
  v_known  text[] := '{}'; -- scopes and consumers that know the key, for events
  v_seen   jsonb := '[]';  -- deliveries: [consumer, message id]
  v_steps  jsonb := '[]';  -- steps: [scope, key, step]
  v_step   pawl.step;
  v_until  timestamptz;
begin
  -- Jobs first, because they lead to deliveries: the key as a job id, and owners of the key.
  if p_key ~ '^[1-9][0-9]{0,17}$' then
    select coalesce(array_agg(f.id), '{}')
      into v_jobs
      from (select j.id, j.queue from pawl.job as j where j.id = p_key::bigint
             union all
            (select a.id, a.queue from pawl_v1.archive as a where a.id = p_key::bigint limit 1)) as f (id, queue)
     where coalesce(f.queue = any (v_within), true);
    if v_jobs = '{}'
       and (exists (select from pawl.audit as a where a.target = 'job ' || p_key and coalesce(a.before ->> 'queue' = any (v_within), true))
            or exists (select from pawl.stale_write as w where w.kind = 'job' and w.key = p_key and coalesce(w.scope = any (v_within), true))) then
      v_jobs := array[p_key::bigint];
    end if;
  end if;

  return query
  select e.at, 'command', c.scope::text, c.key::text, e.event, e.detail
    from unnest(p_scopes) as s (name)
   cross join lateral (select o.* from pawl.command as o where o.scope = s.name and o.key = p_key limit 1) as c
   cross join lateral (
          values (c.created_at, 'claimed', jsonb_build_object('fingerprint', encode(c.hash, 'hex'))),
                 (case c.status when 'processing' then clock_timestamp() else c.updated_at end, c.status::text,
                  jsonb_strip_nulls(jsonb_build_object(
                    'attempts', c.attempts, 'fence', c.fence, 'claimed_by', c.claimed_by, 'lease_expires_at', c.lease_expires_at,
                    'response_status', c.response_status, 'response_octets', octet_length(c.response_body),
                    'result_octets', octet_length(c.result), 'result_ref_type', c.result_ref_type, 'result_ref_id', c.result_ref_id,
                    'failure_code', c.failure_code, 'failure_message', c.failure_message))),
                 (case when c.status in ('succeeded', 'failed_final') then c.expires_at end, 'memory_ends', '{}')) as e (at, event, detail)
   where e.at is not null;
  return query
  select w.at, w.kind, w.scope::text, w.key::text, 'stale_write_refused', jsonb_build_object('fence', w.fence, 'worker', w.worker)
    from unnest(p_scopes) as s (name)
   cross join lateral (
          select o.* from pawl.stale_write as o where o.kind = 'command' and o.key = p_key and o.scope = s.name order by o.fence limit 100) as w;

  v_jobs := v_jobs || array(select r.id from pawl_v1._refused_of(p_key, p_consumers, p_queues) as r (id));

  -- The job of a stored delivery names it in its headers. An enqueue key was inserted just before
  -- it.
  select coalesce(jsonb_agg(distinct jsonb_build_array(f.consumer, f.key)), '[]')
    into v_seen
    from (
      select i.consumer::text, i.key::text
        from unnest(p_consumers) as s (name)
       cross join lateral (select o.consumer, o.key from pawl.inbox as o where o.consumer = s.name and o.key = p_key limit 1) as i
       union all
      select d.consumer::text, d.key::text
        from unnest(p_consumers) as s (name)
       cross join lateral (select o.consumer, o.key from pawl.delivery as o where o.consumer = s.name and o.key = p_key limit 1) as d
       union all
      select substr(j.queue, length('inbox/') + 1), j.headers ->> 'pawl-inbox-key'
        from (select o.queue, o.headers from pawl.job as o where o.id = any (v_jobs)
               union all
              select o.queue, o.headers from pawl_v1.archive as o where o.id = any (v_jobs)) as j (queue, headers)
       where j.queue like 'inbox/%'
         and j.headers ->> 'pawl-inbox-key' is not null) as f (consumer, key);

  return query
  select e.at, 'delivery', i.consumer::text, i.key::text, e.event, e.detail
    from jsonb_array_elements(v_seen) as s (pair)
   cross join lateral (
          select o.* from pawl.inbox as o where o.consumer = s.pair ->> 0 and o.key = s.pair ->> 1 limit 1) as i
   cross join lateral (
          values (i.received_at, 'received', jsonb_strip_nulls(jsonb_build_object('fingerprint', encode(i.hash, 'hex'), 'job', i.job_id))),
                 (i.processed_at, 'processed', jsonb_strip_nulls(jsonb_build_object('result_ref', i.result_ref)))) as e (at, event, detail)
   where e.at is not null;
  return query
  select d.received_at, 'delivery', d.consumer::text, d.key::text, 'kept',
         jsonb_strip_nulls(jsonb_build_object('octets', octet_length(d.payload), 'verified_by', d.verified_by))
    from jsonb_array_elements(v_seen) as s (pair)
   cross join lateral (
          select o.* from pawl.delivery as o where o.consumer = s.pair ->> 0 and o.key = s.pair ->> 1 limit 1) as d;
  v_jobs := v_jobs || array(
    select i.job_id
      from jsonb_array_elements(v_seen) as s (pair)
     cross join lateral (
            select o.job_id from pawl.inbox as o where o.consumer = s.pair ->> 0 and o.key = s.pair ->> 1 limit 1) as i
     where i.job_id is not null);

  return query
  select g.held_at, 'gate', g.consumer::text, g.resource::text, 'held', jsonb_build_object('seq', g.seq, 'job', g.job_id)
    from jsonb_array_elements(v_seen) as s (pair)
   cross join lateral (select o.* from pawl.sequence_gate_held as o where o.consumer = s.pair ->> 0 and o.job_id = any (v_jobs)) as g;
  return query
  select e.at, 'gate', g.consumer::text, g.resource::text, e.event, e.detail
    from unnest(p_consumers) as s (name)
   cross join lateral (select o.* from pawl.sequence_gate as o where o.consumer = s.name and o.resource = p_key limit 1) as g
   cross join lateral (
          select clock_timestamp(), 'stands', jsonb_build_object('last', g.last)
           union all
          (select h.held_at, 'held', jsonb_build_object('seq', h.seq, 'job', h.job_id)
             from pawl.sequence_gate_held as h
            where h.consumer = g.consumer
              and h.resource = g.resource
            order by h.seq
            limit 100)) as e (at, event, detail);

  -- Enqueue keys: the key itself, those of events appended under it ("scope key type", each after
  -- its length), and that of a job given by its id.
  v_known := array(
    select s.name
      from unnest(p_scopes) as s (name)
     cross join lateral (select o.key from pawl.command as o where o.scope = s.name and o.key = p_key limit 1) as c
     union
    select s.pair ->> 0
      from jsonb_array_elements(v_seen) as s (pair)
     where s.pair ->> 1 = p_key);
  for at, scope, key, detail in
    select k.created_at, k.queue, k.key, jsonb_build_object('job', k.job_id, 'fingerprint', encode(k.hash, 'hex'), 'expires_at', k.expires_at)
      from unnest(p_queues) as s (name)
     cross join lateral (select o.* from pawl.job_key as o where o.queue = s.name and o.key = p_key limit 1) as k
     union
    select k.created_at, k.queue, k.key, jsonb_build_object('job', k.job_id, 'fingerprint', encode(k.hash, 'hex'), 'expires_at', k.expires_at)
      from unnest(p_queues) as s (name)
     cross join unnest(v_known) as w (scope)
     cross join lateral (
            select o.*
              from pawl.job_key as o
             where o.queue = s.name
               and o.key >= pawl_v1._joined(w.scope, p_key) || '0'
               and o.key < pawl_v1._joined(w.scope, p_key) || ':'
             order by o.key
             limit 100) as k
     where s.name like 'outbox/%'
     union
    select k.created_at, k.queue, k.key, jsonb_build_object('job', k.job_id, 'fingerprint', encode(k.hash, 'hex'), 'expires_at', k.expires_at)
      from (select o.id, o.created_at from pawl.job as o where o.id = any (v_jobs)
             union all
            select o.id, o.created_at from pawl_v1.archive as o where o.id = any (v_jobs)) as j (id, created_at)
     cross join lateral pawl_v1._key_of_job(j.id, j.created_at) as k
  loop
    kind := 'enqueue_key';
    event := 'taken';
    v_jobs := v_jobs || (detail ->> 'job')::bigint;
    v_until := (detail ->> 'expires_at')::timestamptz;
    detail := detail - 'expires_at';
    return next;
    at := v_until;
    event := 'memory_ends';
    detail := '{}';
    return next;
  end loop;
  v_jobs := array(select distinct u.id from unnest(v_jobs) as u (id));
  return query
  select s.* from pawl_v1._story_of_jobs(v_jobs) as s;

  for v_step in select e.* from pawl_v1._steps_of(p_key, v_jobs, p_owners) as e loop
    v_steps := v_steps || jsonb_build_array(jsonb_build_array(v_step.scope, v_step.key, v_step.step));
    return query
    select e.at, 'step', v_step.scope::text, v_step.key::text, e.event, jsonb_strip_nulls(jsonb_build_object('step', v_step.step) || e.detail)
      from (
        select v_step.created_at, 'planned',
               jsonb_build_object('recovery', v_step.recovery, 'provider', v_step.provider, 'provider_key', v_step.provider_key)
         union all
        select c.started_at, case when c.probe then 'asked' else 'called' end, jsonb_build_object('fence', c.fence)
          from pawl.step_call as c
         where c.scope = v_step.scope
           and c.key = v_step.key
           and c.step = v_step.step
         union all
        select c.ended_at, c.outcome::text, jsonb_build_object('fence', c.fence, 'reference', c.reference, 'error', c.detail ->> 'error')
          from pawl.step_call as c
         where c.scope = v_step.scope
           and c.key = v_step.key
           and c.step = v_step.step
           and c.ended_at is not null
         union all
        select case v_step.status when 'planned' then clock_timestamp() else v_step.updated_at end, v_step.status::text,
               jsonb_build_object('fence', v_step.fence, 'job', v_step.job_id, 'reference', v_step.reference, 'result_octets', octet_length(v_step.result),
                                  'failure_code', v_step.failure_code, 'failure_message', v_step.failure_message)
      ) as e (at, event, detail);
  end loop;

  -- Audit targets are one text. A deleted row is known only there, so query every name.
  return query
  select a.at, t.kind, t.scope, t.key, a.verb::text, jsonb_build_object('actor', a.actor, 'reason', a.reason)
    from (
      select 'command', s.name, p_key, pawl_v1._audit_target('command', s.name, p_key) from unnest(p_scopes) as s (name)
       union all
      select 'delivery', s.name, p_key, pawl_v1._audit_target('inbox', s.name, p_key) from unnest(p_consumers) as s (name)
       union all
      select 'delivery', s.pair ->> 0, s.pair ->> 1, pawl_v1._audit_target('inbox', s.pair ->> 0, s.pair ->> 1)
        from jsonb_array_elements(v_seen) as s (pair)
       where s.pair ->> 1 <> p_key
       union all
      select 'gate', s.name, p_key, pawl_v1._audit_target('gate', s.name, p_key) from unnest(p_consumers) as s (name)
       union all
      select 'step', s.step ->> 0, s.step ->> 1, pawl_v1._audit_target('step', s.step ->> 0, s.step ->> 1, s.step ->> 2)
        from jsonb_array_elements(v_steps) as s (step)
       union all
      select 'job', null, i.id::text, 'job ' || i.id from unnest(v_jobs) as i (id)) as t (kind, scope, key, target)
   cross join lateral (
          select o.at, o.verb, o.actor, o.reason
            from pawl.audit as o
           where o.target = t.target
           order by o.id desc
           limit 100) as a;
end
$$;

-- _owners_of returns the scopes of steps whose owner belongs to a scope. That is a command's scope,
-- a consumer, a queue, or a table of package guard with or without its schema. Of tables without
-- schema, it finds those among the first 500 scopes of steps.
create or replace function pawl_v1._owners_of(p_scope text)
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
begin
  return array(
    select p_scope
     union
    -- As OwnerOf of the Go client names owners.
    select case when octet_length(k.kind || '/' || p_scope) <= 255 then k.kind || '/' || p_scope else pawl_v1._joined(k.kind, p_scope) end
      from unnest('{command,inbox,job,guard}'::text[]) as k (kind)
     union
    select n.name
      from unnest(pawl_v1._names('step', 'scope', 500)) as n (name)
     where n.name like 'guard/%'
       and right('.' || replace(substr(n.name, length('guard/') + 1), '"', ''), length(replace(p_scope, '"', '')) + 1) = '.' || replace(p_scope, '"', ''));
end
$$;

-- explain returns all that the tables and the audit have about a key, in the order of time:
-- requests, results, changes by operators, and when it will be purged. p_key is the key of a
-- command, a delivery, a job or an event, the id of a job, or the resource of a gate. The id of a
-- row of package guard leads to its steps. It reads by indexes only, changes nothing, and shows no
-- payload.
--
-- Related rows are included: the job of a delivery, the events of a command that were appended
-- under its key, the calls of a job. An event without a key of its own cannot be found by its id. A
-- delivery that came under the key with another payload is included as a dead letter. While it is
-- retried, it is included only if it is among the first 500 that were refused a key.
--
-- The last row has the kind 'looked'. Its detail has the number of 'scopes', 'consumers', 'queues'
-- and 'steps' (their owners) in which it looked. 'beyond' names those of which there were more than
-- 500.
--
-- Columns:
--   at                The time. A future time for planned events, null if there is none.
--   kind, scope, key  The subject: 'command', 'delivery', 'gate', 'enqueue_key', 'job' (its queue
--                     and id), 'step' (its owner's scope and key, the step in detail).
--   event             The status for the present state, the function for an operator's action
--                     (detail.actor, detail.reason), else the event.
--
-- Errors:
--   P4001, P4004  An argument.
--
-- Options:
--   scope  (text, default none) Look there only: a command's scope, a consumer, a queue, or a table
--          of package guard with or without its schema.
create or replace function pawl_v1.explain(p_key text, p_options jsonb default '{}')
returns table (at timestamptz, kind text, scope text, key text, event text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
set enable_seqscan = off -- every read has an index, even with bad statistics
set jit = off            -- with bad statistics, compiling takes a hundred times as long as reading
as $$
declare
  v_most      constant int := 500;
  v_scope     text := p_options ->> 'scope';
  v_scopes    text[] := array[v_scope];
  v_consumers text[] := array[v_scope];
  v_queues    text[] := array[v_scope];
  v_owners    text[];
  v_beyond    text[];
begin
  perform pawl_v1._check_options(p_options, '{scope}');
  perform pawl_v1._check_key('key', p_key);
  if v_scope is null then
    v_scopes := pawl_v1._names('command', 'scope', v_most + 1);
    v_queues := pawl_v1._names('job_key', 'queue', v_most + 1);
    v_owners := pawl_v1._names('step', 'scope', v_most + 1);
    v_consumers := array(
      select distinct n.name collate "C"
        from unnest(pawl_v1._names('inbox', 'consumer', v_most + 1) || pawl_v1._names('delivery', 'consumer', v_most + 1)
                    || pawl_v1._names('sequence_gate', 'consumer', v_most + 1)) as n (name)
       order by 1);
  else
    v_owners := pawl_v1._owners_of(v_scope);
  end if;
  v_beyond := array_remove(array[
    case when cardinality(v_scopes) > v_most then 'scopes' end,
    case when cardinality(v_consumers) > v_most then 'consumers' end,
    case when cardinality(v_queues) > v_most then 'queues' end,
    case when cardinality(v_owners) > v_most then 'steps' end], null);
  return query
  select s.at, s.kind, s.scope, s.key, s.event, s.detail
    from pawl_v1._story(p_key, v_scope, v_scopes[ : v_most], v_consumers[ : v_most], v_queues[ : v_most], v_owners[ : v_most]) with ordinality
           as s (at, kind, scope, key, event, detail, n)
   order by s.at nulls last, s.n;
  return query
  select null::timestamptz, 'looked', v_scope, p_key, 'looked', jsonb_build_object(
           'scopes', cardinality(v_scopes[ : v_most]), 'consumers', cardinality(v_consumers[ : v_most]),
           'queues', cardinality(v_queues[ : v_most]), 'steps', cardinality(v_owners[ : v_most]), 'beyond', to_jsonb(v_beyond));
end
$$;
