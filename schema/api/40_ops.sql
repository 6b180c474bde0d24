-- The operators' verbs. They are the only audited way to change a job by hand.
--
-- Each locks the row, decides by its status, changes it and writes pawl.audit in one transaction.
-- So a change and its record commit together. fence + 1 makes the operator a new holder, so a
-- running attempt gets P4020 at its next call.

create or replace function pawl_v1._check_by(p_actor text, p_reason text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
begin
  if p_actor is null or octet_length(p_actor) not between 1 and 255 then
    raise exception 'actor must have 1 to 255 octets, it has %', coalesce(octet_length(p_actor), 0)
      using errcode = 'P4004', hint = 'pass who is doing this, a person or a program';
  end if;
  if p_reason is null or octet_length(p_reason) not between 1 and 4000 then
    raise exception 'reason must have 1 to 4000 octets, it has %', coalesce(octet_length(p_reason), 0)
      using errcode = 'P4004', hint = 'pass why, in a sentence that somebody else understands next year';
  end if;
end
$$;

-- _check_fence_seen requires the fence that a verdict is about. Else it could settle the next call.
create or replace function pawl_v1._check_fence_seen(p_fence bigint)
returns void
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_fence is null then
    raise exception 'a verdict needs the fence of what it is about'
      using errcode = 'P4004', hint = 'pass the fence that was shown when you looked: see pawl_v1.steps, pawl_v1.stale_commands';
  end if;
end
$$;

-- _job_locked returns a job's row, locked; null if there is none. A waiting job in its head's
-- running batch counts as processing.
create or replace function pawl_v1._job_locked(p_id bigint)
returns pawl.job
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job pawl.job;
  v_pid int;
begin
  begin
    select j.*
      into v_job
      from pawl.job as j
     where j.id = p_id
       for update;
  exception
    when lock_not_available then
      select l.pid
        into v_pid
        from pawl.job as j
        join pg_catalog.pg_locks as l on l.transactionid = j.xmax
       where j.id = p_id
         and l.granted;
      raise exception 'job % is locked by an open transaction, most likely that of its attempt', p_id
        using errcode = '55P03',
              hint = 'ask again when that has ended, or end it: select pg_terminate_backend('
                || coalesce(v_pid::text, 'its pid, see pg_stat_activity') || ')';
  end;
  if v_job.status = 'waiting'
     and exists (
       select
         from pawl.job as h
        where h.lane_id = v_job.lane_id
          and h.lane_head
          and h.status = 'processing'
          and h.batch_end >= v_job.position) then
    v_job.status := 'processing';
  end if;
  return v_job;
end
$$;

-- _operate checks the common arguments and returns the row locked; null if there is none.
create or replace function pawl_v1._operate(p_id bigint, p_actor text, p_reason text, p_options jsonb)
returns pawl.job
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_from(p_options);
  perform pawl_v1._check_by(p_actor, p_reason);
  return pawl_v1._job_locked(p_id);
end
$$;

-- _refusal returns the answer of a refused verb, or no row. detail.hint is the next step.
create or replace function pawl_v1._refusal(p_job pawl.job, p_takes text[], p_options jsonb)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_from  text[] := pawl_v1._text_array_option(p_options, 'from');
  v_fence bigint := pawl_v1._int_option(p_options, 'fence', null, 0, 9223372036854775807);
  v_hint  text;
begin
  if p_job.id is null then
    return query
    select 'absent', jsonb_build_object('hint', 'it finished, was discarded, or was never there');
    return;
  end if;
  if p_job.status <> all (p_takes) then
    v_hint := case p_job.status
      when 'processing' then 'an attempt is running: let it end, or cancel the job first'
      when 'unknown' then 'it is unknown whether a call of it was executed: its step needs a verdict, see step_settle'
      when 'waiting' then 'nothing failed: it waits for its turn in its lane'
      when 'succeeded' then 'it has ended well'
      else 'it has ended: retry or discard it'
    end;
  elsif p_job.status <> all (v_from) then
    v_hint := 'asked for jobs that are ' || array_to_string(v_from, ' or ') || ' only';
  elsif p_job.fence <> v_fence then
    v_hint := 'it has been tried or changed since you looked: its fence is ' || p_job.fence || ', not ' || v_fence || '; look again';
  else
    return;
  end if;
  return query
  select 'refused', jsonb_build_object('status', p_job.status, 'hint', v_hint);
end
$$;

-- A misspelt status in option from would refuse every job.
create or replace function pawl_v1._check_from(p_options jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_unknown text;
begin
  select f.status
    into v_unknown
    from unnest(pawl_v1._text_array_option(p_options, 'from')) as f (status)
   where f.status is null
      or f.status not in ('pending', 'waiting', 'processing', 'unknown', 'dead_letter', 'cancelled', 'succeeded')
   limit 1;
  if found then
    raise exception 'option from names no status: %', coalesce(v_unknown, 'null')
      using errcode = 'P4004',
            hint = 'known here: pending, waiting, processing, unknown, dead_letter, cancelled, succeeded';
  end if;
end
$$;

-- _job_record is a job as the audit keeps it, with the payload's length and SHA-256.
create or replace function pawl_v1._job_record(p_job pawl.job)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_payload bytea := p_job.payload;
begin
  if p_job.id is null then
    return null;
  end if;
  p_job.payload := null;
  return to_jsonb(p_job) - 'payload'
    || jsonb_build_object('payload_octets', octet_length(v_payload), 'payload_sha256', encode(sha256(v_payload), 'hex'));
end
$$;

-- p_after null: deleted.
create or replace function pawl_v1._job_audit(p_verb text, p_actor text, p_reason text, p_before pawl.job, p_after pawl.job)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, p_verb, 'job ' || (p_before).id, p_reason, pawl_v1._job_record(p_before), pawl_v1._job_record(p_after))
$$;

-- job_retry makes a dead letter, a cancelled job, or a pending job that waits for its next try due
-- now, with attempts and crashes reset. Its errors, inbox row and key stay.
--
-- Options: from (array of statuses): refuse a job in any other. fence (bigint): refuse a job that
-- was tried or changed since pawl_v1.jobs showed this fence.
-- Outcomes: 'retried' (detail.status: the former one). 'refused' (detail.status, detail.hint).
-- 'absent'. In a lane, a dead letter that blocks it is still its head. One that gave the lane up,
-- or was cancelled, returns at its old position (detail.lane 'pending' or 'waiting'). Under policy
-- skip it leaves the lane (detail.lane 'left'). Errors: P4004, actor or reason. 55P03, an open
-- transaction has held the row for 2 s; nothing changed.
create or replace function pawl_v1.job_retry(p_id bigint, p_actor text, p_reason text, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job;
  v_after  pawl.job;
  v_lane   jsonb := '{}';
begin
  perform pawl_v1._check_options(p_options, '{from,fence}');
  v_before := pawl_v1._operate(p_id, p_actor, p_reason, p_options);
  return query
  select r.outcome, r.detail
    from pawl_v1._refusal(v_before, '{dead_letter,cancelled,pending}', p_options) as r;
  if found then
    return;
  end if;
  if v_before.lane_id is not null and not v_before.lane_head then
    v_lane := pawl_v1._lane_again(v_before);
  end if;
  update pawl.job as j
     set status = case when j.status = 'waiting' then 'waiting' else 'pending' end,
         fence = j.fence + 1,
         attempts = 0,
         crashes = 0,
         crashes_alone = 0,
         available_at = clock_timestamp()
   where j.id = p_id -- locked since its status was read
  returning j.*
       into v_after;
  perform pawl_v1._job_audit('job_retry', p_actor, p_reason, v_before, v_after);
  perform pawl_v1._wake(array[v_after.queue]);
  return query
  select 'retried', jsonb_build_object('status', v_before.status) || v_lane;
end
$$;

-- _lane_again returns a job that gave up its lane to its old position, or takes it out of the lane
-- under policy skip. The job's row is locked: no deadlock, as holders of lanes wait only for heads.
create or replace function pawl_v1._lane_again(p_job pawl.job)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_policy text;
  v_status text;
begin
  update pawl.lane as l
     set ver = l.ver + 1
   where l.id = p_job.lane_id
  returning l.policy
       into v_policy;
  if v_policy = 'skip' then
    update pawl.job as j
       set status = 'pending',
           lane_id = null,
           position = null
     where j.id = p_job.id;
    return '{"lane": "left"}';
  end if;
  update pawl.job as j
     set status = 'waiting'
   where j.id = p_job.id;
  perform pawl_v1._lanes_advance(array[p_job.lane_id]);
  select j.status
    into v_status
    from pawl.job as j
   where j.id = p_job.id;
  return jsonb_build_object('lane', v_status);
end
$$;

-- _job_stop cancels a job whose row is locked, and recalls a running attempt from its worker.
create or replace function pawl_v1._job_stop(p_before pawl.job)
returns pawl.job
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_after pawl.job;
begin
  update pawl.job as j
     set status = 'cancelled',
         lane_head = false,
         fence = j.fence + 1,
         claimed_by = null,
         lease_expires_at = null
   where j.id = p_before.id -- locked since its status was read
  returning j.*
       into v_after;
  insert into pawl.recall (worker_id, job_id, fence)
  select p_before.claimed_by, p_before.id, p_before.fence
   where p_before.claimed_by <> 0;
  return v_after;
end
$$;

-- job_cancel cancels a job that has not ended; it can be retried or discarded later. A running
-- attempt is fenced off. Its worker gets a recall with the next heartbeat and can end the handler.
--
-- Options: from, fence, as of job_retry.
-- Outcomes: 'cancelled' (detail.status: the former one; for a lane's head also as of _lanes_free),
-- 'refused', 'absent'. The next job of its lane may start before the old handler has stopped.
-- Errors: as of job_retry. An attempt with an open transaction holds the row until it ends: see
-- job_recall.
create or replace function pawl_v1.job_cancel(p_id bigint, p_actor text, p_reason text, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job;
  v_after  pawl.job;
begin
  perform pawl_v1._check_options(p_options, '{from,fence}');
  v_before := pawl_v1._operate(p_id, p_actor, p_reason, p_options);
  return query
  select r.outcome, r.detail
    from pawl_v1._refusal(v_before, '{pending,waiting,processing}', p_options) as r;
  if found then
    return;
  end if;
  v_after := pawl_v1._job_stop(v_before);
  perform pawl_v1._job_audit('job_cancel', p_actor, p_reason, v_before, v_after);
  return query
  select 'cancelled', jsonb_build_object('status', v_before.status)
    || case when v_before.lane_head then pawl_v1._lane_freed(v_before.lane_id, v_before.queue) else '{}' end;
end
$$;

-- job_recall asks the worker of a running job to end its handler, with the next heartbeat. The
-- attempt then rolls back and releases the job, uncharged. Use it to cancel a job whose attempt has
-- locked the row. Recall in its own transaction, then call job_cancel: it waits for the lock and
-- gets it before the attempt can release the job.
-- Outcomes: 'recalled', or 'not_held': no worker runs it. It writes no audit record.
create or replace function pawl_v1.job_recall(p_id bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  insert into pawl.recall (worker_id, job_id, fence)
  select j.claimed_by, j.id, j.fence
    from pawl.job as j
   where j.id = p_id
     and j.status = 'processing'
     and j.claimed_by <> 0;
  return query
  select case when found then 'recalled' else 'not_held' end, '{}'::jsonb;
end
$$;

-- job_discard deletes a job that is not running, with payload and errors; the audit keeps the rest.
-- Its inbox row and key stay, so a redelivery or the same key is still a duplicate.
--
-- Options: from, fence, as of job_retry.
-- Outcomes: 'discarded' (detail.status: the former one), 'refused', 'absent'. For the head of a
-- lane, detail as of _lanes_free. Errors: as of job_retry.
create or replace function pawl_v1.job_discard(p_id bigint, p_actor text, p_reason text, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job;
begin
  perform pawl_v1._check_options(p_options, '{from,fence}');
  v_before := pawl_v1._operate(p_id, p_actor, p_reason, p_options);
  return query
  select r.outcome, r.detail
    from pawl_v1._refusal(v_before, '{dead_letter,cancelled,pending,waiting}', p_options) as r;
  if found then
    return;
  end if;
  delete from pawl.job as j
   where j.id = p_id;
  perform pawl_v1._job_audit('job_discard', p_actor, p_reason, v_before, null);
  return query
  select 'discarded', jsonb_build_object('status', v_before.status)
    || case when v_before.lane_head then pawl_v1._lane_freed(v_before.lane_id, v_before.queue) else '{}' end;
end
$$;

-- lane_unblock lets a lane go on past a dead letter that blocks it. The dead letter stays.
--
-- Options: job (id): refuse if another job blocks the lane now.
-- Outcomes: 'unblocked' (detail.job, and as of _lanes_free). 'refused' (detail.job, detail.status,
-- detail.hint). 'idle': the lane has no head. 'absent': no such lane. Errors: as of job_retry.
create or replace function pawl_v1.lane_unblock(
  p_queue   text,
  p_lane    text,
  p_actor   text,
  p_reason  text,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_lane     bigint;
  v_before   pawl.job;
  v_after    pawl.job;
  v_advanced record;
  v_only     bigint := pawl_v1._int_option(p_options, 'job', null, 1, 9223372036854775807);
begin
  perform pawl_v1._check_options(p_options, '{job}');
  perform pawl_v1._check_by(p_actor, p_reason);
  update pawl.lane as l
     set ver = l.ver + 1
   where l.queue = p_queue
     and l.name = p_lane
  returning l.id
       into v_lane;
  if not found then
    return query
    select 'absent', jsonb_build_object('hint', 'no job of this queue has been enqueued into it, or it was purged');
    return;
  end if;
  select j.*
    into v_before
    from pawl.job as j
   where j.lane_id = v_lane
     and j.lane_head
     for update;
  if not found then
    perform pawl_v1._lanes_advance(array[v_lane]), pawl_v1._wake(array[p_queue]);
    return query
    select 'idle', '{}'::jsonb;
    return;
  end if;
  if v_before.status <> 'dead_letter' or v_before.id <> v_only then
    return query
    select 'refused', jsonb_build_object('job', v_before.id, 'status', v_before.status, 'hint', case
      when v_before.status = 'unknown' then 'it is unknown whether a call of it was executed: its step needs a verdict, see step_settle'
      when v_before.status <> 'dead_letter' then 'it is not dead: let it end, or cancel it'
      else 'another job blocks the lane by now' end);
    return;
  end if;
  update pawl.job as j
     set lane_head = false
   where j.id = v_before.id
  returning j.*
       into v_after;
  perform pawl_v1._job_audit('lane_unblock', p_actor, p_reason, v_before, v_after);
  select a.promoted, a.stuck
    into v_advanced
    from pawl_v1._lanes_advance(array[v_lane]) as a;
  perform pawl_v1._wake(array[p_queue]);
  return query
  select 'unblocked', jsonb_build_object('job', v_before.id)
    || case when v_advanced.promoted > 0 then jsonb_build_object('promoted', v_advanced.promoted) else '{}' end
    || case when cardinality(v_advanced.stuck) > 0 then jsonb_build_object('skipped', to_jsonb(v_advanced.stuck)) else '{}' end;
end
$$;

-- lane_policy sets what a lane does when its head becomes a dead letter: 'block', 'park' or 'skip'.
-- A dead letter that already blocks it still does: see lane_unblock. The lane is no longer purged.
-- Outcomes: 'changed' (detail.policy: the former one), or 'absent'. Errors: as of job_retry.
create or replace function pawl_v1.lane_policy(p_queue text, p_lane text, p_policy text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.lane;
  v_after  pawl.lane;
begin
  perform pawl_v1._check_lane_policy(p_policy);
  perform pawl_v1._check_by(p_actor, p_reason);
  select l.*
    into v_before
    from pawl.lane as l
   where l.queue = p_queue
     and l.name = p_lane
     for no key update;
  if not found then
    return query
    select 'absent', jsonb_build_object('hint', 'no job of this queue has been enqueued into it, or it was purged');
    return;
  end if;
  update pawl.lane as l
     set ver = l.ver + 1,
         kept = true,
         policy = p_policy
   where l.id = v_before.id
  returning l.*
       into v_after;
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, 'lane_policy', 'lane ' || v_before.id, p_reason, to_jsonb(v_before), to_jsonb(v_after));
  return query
  select 'changed', jsonb_build_object('policy', v_before.policy);
end
$$;

-- queue_set changes the settings of a queue, for claims and finishes that begin after the commit,
-- in any process. Absent options stay unchanged. Attempts and enqueues go on in every mode.
--
-- Options: archive (boolean): finished jobs are archived with their payloads for seven days. mode:
-- 'running' (default). 'draining': only jobs that were tried before are claimed (attempts or
-- crashes above 0). 'paused': no job is claimed.
-- Outcomes: 'changed', or 'unchanged' without an audit record. detail: the former archive and mode.
-- Errors: P4000, the queue's name. P4004 and 55P03 as of job_retry.
create or replace function pawl_v1.queue_set(p_queue text, p_options jsonb, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.queue;
  v_after  pawl.queue;
  v_was    jsonb;
begin
  perform pawl_v1._check_options(p_options, '{archive,mode}');
  perform pawl_v1._check_scope('queue', p_queue);
  perform pawl_v1._check_by(p_actor, p_reason);
  if coalesce(jsonb_typeof(p_options -> 'archive'), 'null') not in ('boolean', 'null') then
    raise exception 'option archive must be true or false, it is %', p_options -> 'archive'
      using errcode = 'P4004';
  end if;
  if p_options ->> 'mode' not in ('running', 'draining', 'paused') then
    raise exception 'option mode is running, draining or paused, not %', p_options ->> 'mode'
      using errcode = 'P4004';
  end if;
  insert into pawl.queue as q (name)
  select p_queue
   where (p_options ->> 'archive')::boolean -- for the defaults no row is needed
      or p_options ->> 'mode' <> 'running'
  on conflict do nothing;
  select q.*
    into v_before
    from pawl.queue as q
   where q.name = p_queue
     for update;
  v_was := jsonb_build_object('archive', coalesce(v_before.archive, false), 'mode', coalesce(v_before.mode, 'running'));
  if v_was @> jsonb_strip_nulls(p_options) then
    return query
    select 'unchanged', v_was;
    return;
  end if;
  update pawl.queue as q
     set archive = coalesce((p_options ->> 'archive')::boolean, q.archive),
         mode = coalesce(p_options ->> 'mode', q.mode)
   where q.name = p_queue
  returning q.*
       into v_after;
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, 'queue_set', 'queue ' || v_before.id, p_reason, to_jsonb(v_before), to_jsonb(v_after));
  if v_after.mode <> 'paused' then
    perform pawl_v1._wake(array[p_queue]);
  end if;
  return query
  select 'changed', v_was;
end
$$;
