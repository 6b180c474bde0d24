-- These verbs are the only audited way to change a job by hand. Each locks the job, decides by its
-- status, raises its fence with the change, and inserts one row into pawl.audit. If you have a
-- transaction open, change and record commit together in it. The new fence makes the operator a new
-- holder, so a running attempt gets P4020 at its next call.
--
-- p_actor (1 to 255 octets) is the operator and p_reason (1 to 4000) the reason. The actor is not
-- verified: the role of the login decides its rights. The record holds the job before and after as
-- JSON, without 'payload', of which payload_octets and payload_sha256 are kept.

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

-- job_retry makes a job due now: a dead letter, a cancelled job, or a pending one that waits for
-- its next try. Its attempts and crashes start from zero, and its errors stay. It is the same job
-- with the same key and inbox row. The retry is therefore no duplicate, and a message that comes
-- again meanwhile is one. A recall by job_cancel that the worker has not fetched yet ends the
-- cancelled attempt, and no later one.
--
-- In a lane, a dead letter that blocks it has kept its turn and is next. One that gave up its turn
-- comes back at its old position, behind the job that has the turn now: detail.lane is 'pending' or
-- 'waiting'. Under the policy 'skip' it leaves the lane: 'left'.
--
-- Outcomes:
--   retried  detail.status is the job's status before.
--   refused  Its status, or an option, does not allow it; nothing changed. detail.status is its
--            status, and detail.hint the next step.
--   absent   There is no such job.
--
-- Errors:
--   P4004  Actor, reason or an option.
--   55P03  An open transaction has had the row for more than 2 s, most likely the attempt's own.
--          Nothing changed. The hint names the session.
--
-- Options:
--   from   (array of statuses, default all that the function takes) A job in any other is refused.
--          Pass the status that you saw, so that you do not overwrite a decision made in between.
--   fence  (number, default none) The fence that you saw in view jobs or dead_letters. A job that
--          was tried or changed since is refused. Pass it when you decide by what an attempt did or
--          did not do.
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

-- job_cancel ends a job that has not ended, and keeps it to be retried or discarded. A running
-- attempt is fenced out: its next hold, finish or fail raises P4020 with DETAIL 'cancelled'. Its
-- worker finds the job in column recalled of its next worker_heartbeat, once. The attempt's effects
-- outside the database cannot be undone.
--
-- If the job had the turn of a lane, detail is also that of job_finish. The next job may start
-- while the handler of this one still runs. An attempt with an open transaction holds the row until
-- it ends: see job_recall.
--
-- Outcomes:
--   cancelled        detail.status is the job's status before.
--   refused, absent  As of job_retry.
--
-- Errors:
--   P4004, 55P03  As of job_retry.
--
-- Options:
--   from, fence  As of job_retry.
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

-- job_recall asks the worker that runs a job to end its handler, at its next heartbeat (500 ms).
-- The attempt rolls back and gives the job back, uncharged. The call changes no row that lasts and
-- leaves no record.
--
-- Use it to cancel a job whose attempt has locked the row, as 'pawl jobs cancel' does. First call
-- it in its own transaction. Then call job_cancel, which waits for the lock and gets it before the
-- attempt can give the job back.
--
-- Outcomes:
--   recalled  The worker learns of it at its next heartbeat.
--   not_held  No worker runs the job.
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

-- job_discard deletes a job that no worker runs, with its payload and its errors. The audit keeps
-- the rest, with 'after' null. Its inbox row and its key stay, so a redelivery, or the same key, is
-- still a duplicate. If it had the turn of a lane, detail is also that of job_finish.
--
-- Outcomes:
--   discarded        detail.status is the job's status before.
--   refused, absent  As of job_retry.
--
-- Errors:
--   P4004, 55P03  As of job_retry.
--
-- Options:
--   from, fence  As of job_retry.
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

-- lane_unblock ends the turn of a dead letter that blocks its lane, so that the lane continues. The
-- dead letter stays, to be retried or discarded. To keep the order, call job_retry on the dead
-- letter instead. It leaves a record in pawl.audit.
--
-- Outcomes:
--   unblocked  detail.job has given up its turn. detail is also that of job_finish.
--   refused    detail.job has the turn. detail.status and detail.hint have the reason.
--   idle       No job has the turn.
--   absent     There is no such lane.
--
-- Errors:
--   P4004  Actor, reason or an option.
--   55P03  An open transaction has had the lane, or the job, for more than 2 s. Nothing changed.
--
-- Options:
--   job  (id, default none) The dead letter. If another job blocks the lane now, the call is
--        refused.
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

-- lane_policy sets what a lane does from now on when the job that has its turn becomes a dead
-- letter. A dead letter that blocks it already still does: see lane_unblock. The lane is not purged
-- any more. It leaves a record in pawl.audit.
--
-- Values of p_policy:
--   block  The lane stops until an operator retries or discards the dead letter, or calls
--          lane_unblock.
--   park   The next job gets the turn. If the dead letter is retried, it comes back at its old
--          position.
--   skip   The next job gets the turn. If the dead letter is retried, it leaves the lane.
--
-- Outcomes:
--   changed  detail.policy is the policy before.
--   absent   There is no such lane.
--
-- Errors:
--   P4004, 55P03  As of lane_unblock.
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

-- queue_set changes settings of a queue, for claims and finishes that begin after the commit, in
-- any process. The queue need not have had a job. It leaves a record in pawl.audit, whose target is
-- 'queue' and the queue's id. If you turn the archive off, its jobs stay until they are seven days
-- old.
--
-- An option that is absent or null stays unchanged. In every mode running attempts continue, and
-- jobs can be enqueued. A claim that is under way at the commit may still take its jobs.
--
-- Outcomes:
--   changed    detail has 'archive' and 'mode' before.
--   unchanged  It was so already. There is no record.
--
-- Errors:
--   P4000  The queue's name.
--   P4004  Actor, reason or an option.
--   55P03  Another transaction has been setting the same queue for more than 2 s.
--
-- Options:
--   archive  (boolean) Finished jobs are kept with their payloads for seven days.
--   mode     ('running', 'draining' or 'paused', default 'running') Which jobs may be claimed.
--            'running': due ones. 'draining': only those that were tried before (attempts or
--            crashes above 0), so that begun work ends. 'paused': none.
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
