-- A step is a call to a system that shares no transaction with the database. It belongs to a job, a
-- delivery or a command. You plan it here, call the system outside, and record the result here.
--
--   step_begin ── call ──▶ (you call the provider) ──▶ step_end ── executed ──▶ succeeded
--        ▲    │                                               │        refused ─▶ failed_final
--        │    ├── probe ─▶ (you ask the provider) ──▶ step_end    not_sent, not_executed ─▶ planned
--        │    ├── wait                                        │
--        │    └── unknown ◀── outcome not known ──────────────┘
--        ├──────── step_settle: an operator's verdict
--        └──────── step_again: repeat a refused call under a new key
--
-- pawl.step is state, one row a step: each change passes a fence or follows from evidence.
-- pawl.step_call is evidence, one row a call. A late result is accepted from any attempt, because
-- it reports the provider's act.
--
-- A call is in doubt until its end is reported, or if it ended 'ambiguous'. The step's recovery
-- says what may follow a doubt: see step_begin.
--
-- Check the owner's fence (job_hold, command_hold), call step_begin and commit. Then, if the
-- outcome says so, call the provider, and call step_end in its own transaction. Do not call the
-- provider before the plan has committed.

create or replace function pawl_v1._refuse_recovery(p_recovery text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'option recovery is keyed, checked, at_most_once, repeatable or accept_duplicates, not %', coalesce(p_recovery, 'null')
    using errcode = 'P4004';
end
$$;

create or replace function pawl_v1._check_recovery(p_recovery text)
returns void
language sql
immutable
return case
  when p_recovery in ('keyed', 'checked', 'at_most_once', 'repeatable', 'accept_duplicates') then null
  else pawl_v1._refuse_recovery(p_recovery)
end;

-- _step_memory returns how long to rely on a provider's memory of a key: less a tenth, at most a
-- minute, for clock differences and network delay.
create or replace function pawl_v1._step_memory(p_memory interval)
returns interval
language sql
immutable
return p_memory - least(p_memory / 10, interval '1 minute');

-- _step_doubts counts a step's calls in doubt. until: the latest time at which one of them may have
-- been sent. For each call that is its reported end, at the latest not_after.
create or replace function pawl_v1._step_doubts(p_step_row pawl.step, out calls int, out until timestamptz)
language plpgsql -- plpgsql caches the plan; an SQL function would be planned at each call
set search_path = pg_catalog, pg_temp
stable
as $$
begin
  select count(*), max(least(c.ended_at, c.not_after))
    into calls, until
    from pawl.step_call as c
   where c.scope = p_step_row.scope
     and c.key = p_step_row.key
     and c.step = p_step_row.step
     and c.fence > p_step_row.cleared
     and not c.probe
     and coalesce(c.outcome, 'ambiguous') = 'ambiguous';
end
$$;

-- _step_resume makes the job that waited for a verdict pending, unless another of its steps is
-- unknown. The job's row was locked before the step's, which is the worker's lock order.
create or replace function pawl_v1._step_resume(p_job bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue text;
begin
  update pawl.job as j
     set status = 'pending',
         fence = j.fence + 1,
         available_at = clock_timestamp()
   where j.id = p_job
     and j.status = 'unknown'
     and not exists (select from pawl.step as e where e.job_id = p_job and e.status = 'unknown')
  returning j.queue
       into v_queue;
  if found then
    perform pawl_v1._wake(array[v_queue]);
  end if;
end
$$;

-- _step_is_unknown reports whether a step is unknown. It locks the waiting job before the step's
-- own row.
create or replace function pawl_v1._step_is_unknown(p_scope text, p_key text, p_step text, out known boolean, out job_id bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  select e.job_id
    into job_id
    from pawl.step as e
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
     and e.status = 'unknown';
  known := found;
  if not known then
    return;
  end if;
  -- A lock alone would let the later of two verdicts on one job use an old snapshot.
  update pawl.job as j
     set available_at = j.available_at
   where j.id = _step_is_unknown.job_id;
end
$$;

-- _step_restart raises 40001 if a step became unknown, or belongs to another job, since
-- _step_is_unknown read it. Locking its job now could deadlock with its worker.
create or replace function pawl_v1._step_restart(p_key text, p_step text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'step % of % has become unknown this moment', p_step, p_key
    using errcode = '40001', hint = 'restart the transaction';
end
$$;

-- _step_record is a step as the audit keeps it, with the result's length.
create or replace function pawl_v1._step_record(p_step_row pawl.step)
returns jsonb
language sql
stable
return to_jsonb(p_step_row) - 'result' || jsonb_build_object('result_octets', octet_length((p_step_row).result));

-- step_begin plans a step or returns what it may do next. p_scope and p_key name the owner, and
-- p_step the step within it (1 to 255 octets each). p_hash is the SHA-256 of the request.
--
-- Outcomes:
--   call            You may call the provider, once, with provider_key, until not_after. Then call
--                   step_end with this fence. detail.again is the number of earlier calls in doubt.
--   probe           An earlier call is in doubt, and the provider can be asked about it by now. Ask
--                   it, then call step_end with this fence.
--   wait            An earlier request may still take effect. Ask again after retry_after_ms.
--   replay_success  The step has succeeded: 'result', 'reference'. Go on.
--   final_failure   The provider has refused: failure_code, failure_message. Do not call.
--   unknown         It cannot be found out whether the call was executed. End the job with job_fail
--                   and 'unknown'; then step_settle.
--
-- Errors:
--   P4002  The step came before with another request.
--   P4000, P4001, P4003, P4004
--          An argument.
--   P4098  pawl.fence_seq issued a fence that an earlier call had. Run 'pawl migrate up'.
--   40001  Restart the transaction.
--   55P03  The row was locked for more than 2 s.
--
-- Options:
--   recovery      (as below, required) The rule for a call in doubt. It may differ from attempt to
--                 attempt.
--   provider_key  (1 to 255 octets, required) The same at every attempt. The first one given is
--                 kept, and returned.
--   provider      (1 to 255 octets, default none) For people, and for reconciliation.
--   timeout_ms    (1 ms to 12 h, default 30 s) No request is sent later than this after the plan.
--   memory_ms     (1 s to 10 years, default 24 h) How long the provider remembers a key; 'keyed'.
--   settle_ms     (0 to 24 h, default 10 s) How long after it was sent a request may still take
--                 effect; 'checked'.
--   retention_ms  (1 s to 10 years, default 30 days) How long the finished step is remembered, from
--                 its end.
--   job_id        (id, default none) The job that is to wait for a verdict.
--
-- Values of option recovery:
--   keyed              The provider drops a second request with the key, as long as it remembers
--                      it. After a doubt: 'call' until memory_ms after the first one, less a tenth,
--                      a minute at most; then 'unknown'.
--   checked            The provider can be asked. After a doubt: 'wait' until settle_ms after the
--                      last moment of sending, then 'probe'.
--   at_most_once       The provider promises nothing. After a doubt: 'unknown'.
--   repeatable         The request is idempotent by its content. After a doubt: 'call'.
--   accept_duplicates  The provider promises nothing, and a second effect is acceptable. After a
--                      doubt: 'call'.
create or replace function pawl_v1.step_begin(p_scope text, p_key text, p_step text, p_hash bytea, p_options jsonb)
returns table (
  outcome text, fence bigint, provider_key text, not_after timestamptz, retry_after_ms int, result bytea, reference text,
  failure_code text, failure_message text, calls int, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_step_row  pawl.step;
  v_outcome text;
  v_doubt   record;
  v_settled timestamptz;
  v_now     timestamptz;
  v_timeout interval;
  v_until   timestamptz;
  v_calls   int;
  v_last    bigint; -- fence of the previous call
begin
  perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key), pawl_v1._check_key('step', p_step),
          pawl_v1._check_hash(p_hash),
          pawl_v1._check_options(p_options, '{recovery,provider_key,provider,timeout_ms,memory_ms,settle_ms,retention_ms,job_id}'),
          pawl_v1._check_recovery(p_options ->> 'recovery'), pawl_v1._check_key('provider_key', p_options ->> 'provider_key');
  v_timeout := pawl_v1._ms_option(p_options, 'timeout_ms', 30000, 1, 43200000);

  for v_try in 1..3 loop
    insert into pawl.step as e (scope, key, step, hash, recovery, provider, provider_key, job_id, expires_at)
    values (p_scope, p_key, p_step, p_hash, p_options ->> 'recovery', p_options ->> 'provider', p_options ->> 'provider_key',
            (p_options ->> 'job_id')::bigint,
            clock_timestamp() + pawl_v1._ms_option(p_options, 'retention_ms', 2592000000, 1000, 315360000000))
    on conflict do nothing;
    select e.*
      into v_step_row
      from pawl.step as e
     where e.scope = p_scope
       and e.key = p_key
       and e.step = p_step
       for update;
    exit when found;
  end loop;
  if not found then
    raise exception 'step % of % keeps appearing and disappearing', p_step, p_key
      using errcode = '40001', hint = 'restart the transaction';
  end if;
  if v_step_row.hash <> p_hash then
    raise exception 'step % of key % in scope % came before with a different request', p_step, p_key, p_scope
      using errcode = 'P4002',
            detail = json_build_object('stored_hash', encode(v_step_row.hash, 'hex'), 'given_hash', encode(p_hash, 'hex')),
            hint = 'a step names one request: derive it from the intent alone, or give the new request a step of its own';
  end if;

  v_now := clock_timestamp();
  select d.calls, d.until
    into v_doubt
    from pawl_v1._step_doubts(v_step_row) as d;
  v_settled := v_doubt.until + pawl_v1._ms_option(p_options, 'settle_ms', 10000, 0, 86400000);
  v_outcome := case
    when v_step_row.status = 'succeeded' then 'replay_success'
    when v_step_row.status = 'failed_final' then 'final_failure'
    when v_step_row.status = 'unknown' then 'unknown'
    when v_doubt.calls = 0 then 'call'
    when p_options ->> 'recovery' in ('repeatable', 'accept_duplicates') then 'call'
    when p_options ->> 'recovery' = 'keyed' and v_now < v_step_row.memory_ends_at then 'call'
    when p_options ->> 'recovery' = 'checked' and v_now < v_settled then 'wait'
    when p_options ->> 'recovery' = 'checked' then 'probe'
    else 'unknown'
  end;

  -- The owner may have a new job, for instance after a replay. The purge needs it.
  if v_outcome in ('replay_success', 'final_failure') and (p_options ->> 'job_id')::bigint <> coalesce(v_step_row.job_id, 0) then
    update pawl.step as e
       set job_id = (p_options ->> 'job_id')::bigint
     where e.scope = p_scope
       and e.key = p_key
       and e.step = p_step;
  end if;
  if v_outcome in ('call', 'probe') then
    -- The provider's memory starts with the first call. That includes a call of which the provider
    -- says that it did nothing, because it carried the key.
    v_until := case when v_outcome = 'call' and p_options ->> 'recovery' = 'keyed' then
      coalesce(case when v_doubt.calls > 0 or v_now < v_step_row.memory_ends_at then v_step_row.memory_ends_at end,
               v_now + pawl_v1._step_memory(pawl_v1._ms_option(p_options, 'memory_ms', 86400000, 1000, 315360000000)))
    end;
    v_last := greatest(v_step_row.fence, v_step_row.cleared);
    update pawl.step as e
       set fence = nextval('pawl.fence_seq'),
           recovery = p_options ->> 'recovery',
           memory_ends_at = coalesce(v_until, e.memory_ends_at),
           job_id = (p_options ->> 'job_id')::bigint,
           updated_at = clock_timestamp()
     where e.scope = p_scope -- locked since its status was read
       and e.key = p_key
       and e.step = p_step
    returning e.*
         into v_step_row;
    if v_step_row.fence <= v_last then -- a verdict on the earlier call would count for this one
      raise exception 'the sequence pawl.fence_seq is behind: it gave out %, and % was given out before', v_step_row.fence, v_last
        using errcode = 'P4098', hint = 'run pawl migrate up, which raises sequences that logical replication left behind';
    end if;
    v_until := least(v_now + v_timeout, v_until);
    insert into pawl.step_call (fence, scope, key, step, probe, started_at, not_after)
    values (v_step_row.fence, p_scope, p_key, p_step, v_outcome = 'probe', v_now, v_until);
  elsif v_outcome = 'unknown' and (v_step_row.status = 'planned' or v_step_row.job_id is distinct from (p_options ->> 'job_id')::bigint) then
    -- The owner may have a new job, for instance after its delivery was forgotten and came again.
    update pawl.step as e
       set status = 'unknown',
           job_id = (p_options ->> 'job_id')::bigint,
           updated_at = clock_timestamp()
     where e.scope = p_scope
       and e.key = p_key
       and e.step = p_step;
  end if;
  select count(*) filter (where not c.probe)
    into v_calls
    from pawl.step_call as c
   where c.scope = p_scope
     and c.key = p_key
     and c.step = p_step;
  return query
  select v_outcome, case when v_outcome in ('call', 'probe') then v_step_row.fence end, v_step_row.provider_key::text,
         case when v_outcome in ('call', 'probe') then v_until end,
         case v_outcome when 'wait' then ceil(extract(epoch from v_settled - v_now) * 1000)::int end,
         v_step_row.result::bytea, v_step_row.reference::text, v_step_row.failure_code::text, v_step_row.failure_message::text, v_calls,
         case
           when v_outcome = 'call' and v_doubt.calls > 0 then jsonb_build_object('again', v_doubt.calls)
           when v_outcome in ('replay_success', 'final_failure') and current_setting('synchronous_standby_names') <> ''
           then pawl_v1._unreplicated()
           else '{}'
         end;
end
$$;

-- step_end records how a call or a probe ended. It is accepted from any attempt, and may be called
-- twice.
--
-- A refusal ends the step if no other call is in doubt, or if all calls carried the same key
-- ('keyed'). Otherwise the step is unknown. When an unknown step is resolved, its job continues.
--
-- Values of p_outcome:
--   executed   Of both: it took effect. p_result (up to 4 MiB) is the answer.
--   refused    Of a call: a final answer. It did not take effect and will not. With 'keyed', the
--              answer to every call with the key.
--   not_sent   Of a call: no request was sent, or the provider reports that it did nothing.
--   ambiguous  Of a call: it was sent, and no answer came.
--   not_executed, cannot_tell
--              Of a probe.
--
-- Outcomes:
--   planned  The step's status now: begin again.
--   succeeded, failed_final, unknown
--            The step's status now.
--   absent   The step was purged.
--
-- Members of detail:
--   late         A newer call has begun since.
--   kept         The step had ended before. Its stored result stays, and step_begin returns it.
--   twice        The provider acted more than once: two calls were executed, or with 'keyed' and
--                'repeatable' two with different references.
--   contradicts  It was executed, and was taken for refused. Or the same call was reported
--                differently before.
--
-- Errors:
--   P4004  p_outcome or an option.
--   40001  The step has just become unknown. Restart the transaction.
--   55P03  A row was locked for 2 s.
--
-- Options:
--   keyless      (boolean) The call of a 'keyed' step carried no key. If it may have been executed,
--                the step is unknown, because another call could be a second effect.
--   reference    (1 to 255 octets, default none) The provider's name for its result.
--   error, code  (text, default none) Of a failure.
--   exchange     (object, default none) Facts about the HTTP exchange, without bodies.
create or replace function pawl_v1.step_end(
  p_scope   text,
  p_key     text,
  p_step    text,
  p_fence   bigint,
  p_outcome text,
  p_result  bytea default null,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_known  record;
  v_step_row pawl.step;
  v_call   pawl.step_call;
  v_doubts int;
  v_status text;
  v_twice  boolean;
  v_ends   boolean;
  v_keyed  boolean;
begin
  perform pawl_v1._check_options(p_options, '{reference,error,code,exchange,keyless}');
  select u.known, u.job_id
    into v_known
    from pawl_v1._step_is_unknown(p_scope, p_key, p_step) as u;
  select e.*
    into v_step_row
    from pawl.step as e
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
     for update;
  select c.*
    into v_call
    from pawl.step_call as c
   where c.fence = p_fence
     and c.scope = p_scope
     and c.key = p_key
     and c.step = p_step;
  if v_step_row.key is null or v_call.fence is null then
    return query
    select 'absent', '{}'::jsonb;
    return;
  end if;
  if v_step_row.status = 'unknown' and (not v_known.known or v_step_row.job_id is distinct from v_known.job_id) then
    perform pawl_v1._step_restart(p_key, p_step);
  end if;
  if p_outcome is null or p_outcome <> all (
    case when v_call.probe then '{executed,not_executed,cannot_tell}' else '{executed,refused,not_sent,ambiguous}' end::text[])
  then
    raise exception '% is not how a % ends', coalesce(p_outcome, 'null'), case when v_call.probe then 'probe' else 'call' end
      using errcode = 'P4004';
  end if;
  -- The first definite outcome stays.
  if coalesce(v_call.outcome, 'ambiguous') not in ('ambiguous', p_outcome) then
    return query
    select v_step_row.status::text, jsonb_build_object('kept', true, 'contradicts', true);
    return;
  end if;

  update pawl.step_call as c
     set outcome = p_outcome,
         ended_at = coalesce(case when c.outcome = p_outcome then c.ended_at end, clock_timestamp()),
         reference = coalesce(p_options ->> 'reference', c.reference),
         detail = c.detail || (p_options - 'reference')
   where c.fence = p_fence;
  select case
           when v_step_row.recovery in ('keyed', 'repeatable') then count(distinct c.reference) > 1
           else count(*) > 1
         end
    into v_twice
    from pawl.step_call as c
   where c.scope = p_scope
     and c.key = p_key
     and c.step = p_step
     and c.outcome = 'executed'
     and not c.probe;
  select d.calls
    into v_doubts
    from pawl_v1._step_doubts(v_step_row) as d;
  v_keyed := v_step_row.recovery = 'keyed' and not coalesce((p_options ->> 'keyless')::boolean, false);
  v_status := case
    when v_step_row.status in ('succeeded', 'failed_final') then v_step_row.status::text
    when p_outcome = 'executed' then 'succeeded'
    -- It was settled since, or asked again under another key.
    when p_outcome = 'refused' and p_fence <= v_step_row.cleared then v_step_row.status::text
    when p_outcome = 'refused' and (v_doubts = 0 or v_keyed) then 'failed_final'
    when p_outcome in ('refused', 'cannot_tell') and p_fence = v_step_row.fence and p_fence > v_step_row.cleared then 'unknown'
    when p_outcome = 'ambiguous' and (v_step_row.recovery = 'at_most_once' or v_step_row.recovery = 'keyed' and not v_keyed)
         and p_fence > v_step_row.cleared then 'unknown'
    when v_step_row.status = 'unknown' and v_doubts = 0 then 'planned'
    else v_step_row.status::text
  end;
  v_ends := v_status in ('succeeded', 'failed_final') and v_status <> v_step_row.status;
  update pawl.step as e
     set status = v_status,
         cleared = case when p_outcome = 'not_executed' and p_fence = e.fence then e.fence else e.cleared end,
         updated_at = clock_timestamp(),
         expires_at = case when v_ends then clock_timestamp() + (e.expires_at - e.created_at) else e.expires_at end,
         result = case when v_ends and v_status = 'succeeded' then p_result else e.result end,
         reference = case when v_ends and v_status = 'succeeded' then p_options ->> 'reference' else e.reference end,
         failure_code = case when v_ends and v_status = 'failed_final' then p_options ->> 'code' else e.failure_code end,
         failure_message = case when v_ends and v_status = 'failed_final' then left(p_options ->> 'error', 4000) else e.failure_message end
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step;
  if v_step_row.status = 'unknown' and v_status <> 'unknown' then
    perform pawl_v1._step_resume(v_step_row.job_id);
  end if;
  return query
  select v_status,
         case when p_fence < v_step_row.fence then '{"late": true}' else '{}' end::jsonb
         || case when v_step_row.status in ('succeeded', 'failed_final') then '{"kept": true}' else '{}' end::jsonb
         || case when p_outcome = 'executed' and v_twice and v_step_row.recovery <> 'accept_duplicates' then '{"twice": true}' else '{}' end::jsonb
         || case when p_outcome = 'executed' and v_step_row.status = 'failed_final' then '{"contradicts": true}' else '{}' end::jsonb;
end
$$;

-- step_settle ends the doubt about an unknown step, after you found out whether it was executed.
-- The job that waits for it continues, unless another of its steps is unknown. p_fence is the
-- step's fence when you asked the provider, as in view steps. The verdict covers the calls up to
-- that one. It leaves a record in pawl.audit.
--
-- Values of p_verdict:
--   executed      The step has succeeded.
--   refused       It failed for good and will not take effect.
--   not_executed  It may be called again.
--
-- Outcomes:
--   settled  detail.status is the status now.
--   refused  It is not unknown: detail.status.
--   moved    Another call has begun since: detail.fence. Ask the provider again.
--   early    Not of 'executed': a frozen attempt may still send the call for detail.retry_after_ms.
--   absent   There is no such step.
--
-- Errors:
--   P4004  Fence, verdict, actor, reason or an option.
--   40001  Restart the transaction.
--   55P03  A row was locked for 2 s.
--
-- Options:
--   result       (text, default none) The answer of an executed call.
--   reference    (1 to 255 octets, default none) The provider's name for the result of an executed
--                call.
--   error, code  (text, default none) Of a refusal.
create or replace function pawl_v1.step_settle(
  p_scope   text,
  p_key     text,
  p_step    text,
  p_fence   bigint,
  p_verdict text,
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
  v_known  record;
  v_before pawl.step;
  v_after  pawl.step;
  v_until  timestamptz;
begin
  perform pawl_v1._check_options(p_options, '{result,reference,error,code}');
  perform pawl_v1._check_by(p_actor, p_reason);
  if p_verdict is null or p_verdict not in ('executed', 'refused', 'not_executed') then
    raise exception 'the verdict is executed, refused or not_executed, not %', coalesce(p_verdict, 'null')
      using errcode = 'P4004';
  end if;
  perform pawl_v1._check_fence_seen(p_fence);
  select u.known, u.job_id
    into v_known
    from pawl_v1._step_is_unknown(p_scope, p_key, p_step) as u;
  select e.*
    into v_before
    from pawl.step as e
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
     for update;
  if v_before.status is distinct from 'unknown' then
    return query
    select case when v_before.key is null then 'absent' else 'refused' end,
           jsonb_strip_nulls(jsonb_build_object('status', v_before.status));
    return;
  end if;
  if not v_known.known or v_before.job_id is distinct from v_known.job_id then
    perform pawl_v1._step_restart(p_key, p_step);
  end if;
  if v_before.fence <> p_fence then
    return query
    select 'moved', jsonb_build_object('status', v_before.status, 'fence', v_before.fence);
    return;
  end if;
  select d.until
    into v_until
    from pawl_v1._step_doubts(v_before) as d;
  if p_verdict <> 'executed' and v_until > clock_timestamp() then
    return query
    select 'early', jsonb_build_object('status', v_before.status,
                                       'retry_after_ms', ceil(extract(epoch from v_until - clock_timestamp()) * 1000)::bigint);
    return;
  end if;
  update pawl.step as e
     set status = case p_verdict when 'executed' then 'succeeded' when 'refused' then 'failed_final' else 'planned' end,
         cleared = e.fence,
         memory_ends_at = null,
         updated_at = clock_timestamp(),
         expires_at = clock_timestamp() + (e.expires_at - e.created_at),
         result = case p_verdict when 'executed' then convert_to(p_options ->> 'result', 'UTF8') end,
         reference = case p_verdict when 'executed' then p_options ->> 'reference' end,
         failure_code = case p_verdict when 'refused' then p_options ->> 'code' end,
         failure_message = case p_verdict when 'refused' then left(coalesce(p_options ->> 'error', p_reason), 4000) end
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
  returning e.*
       into v_after;
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, 'step_settle', pawl_v1._audit_target('step', p_scope, p_key, p_step), p_reason,
          pawl_v1._step_record(v_before), pawl_v1._step_record(v_after));
  perform pawl_v1._step_resume(v_after.job_id);
  return query
  select 'settled', jsonb_build_object('status', v_after.status);
end
$$;

-- step_again lets a step be called again, under a new key, if its provider refused it for good. The
-- refusal is stored, and a provider repeats it for its key, so a retry of the job alone fails again
-- at once. Use it if the request may be accepted now, for example because the customer has a new
-- card. Then retry the job (job_retry). It leaves a record in pawl.audit.
--
-- No key ties the new call to the old ones. If the provider took one of them after all, the effect
-- happens twice. p_fence is the step's fence when you looked, as in view steps.
--
-- Outcomes:
--   renewed      detail has provider_key, 'job' and 'calls'.
--   would_renew  With dry_run: as renewed, but nothing changed.
--   refused      It was not refused: detail.status. Or a call of it was executed: detail.executed.
--   moved        Another call has begun since: detail.fence.
--   early        A frozen attempt may still send an earlier call for detail.retry_after_ms.
--   absent       There is no such step.
--
-- Errors:
--   P4001  The key is invalid or the old one.
--   P4004  Fence, actor, reason or an option.
--   55P03  The row was locked for 2 s.
--
-- Options:
--   provider_key  (1 to 255 octets, default a random UUID) The new key.
--   dry_run       (boolean) Report what would be done.
create or replace function pawl_v1.step_again(
  p_scope   text,
  p_key     text,
  p_step    text,
  p_fence   bigint,
  p_actor   text,
  p_reason  text,
  p_options jsonb default '{}'
)
returns table (outcome text, detail jsonb)
language plpgsql
set lock_timeout = '2s'
set search_path = pg_catalog, pg_temp
as $$
declare
  v_before pawl.step;
  v_after  pawl.step;
  v_seen   record;
  v_new    text := coalesce(p_options ->> 'provider_key', gen_random_uuid()::text);
begin
  perform pawl_v1._check_options(p_options, '{provider_key,dry_run}');
  perform pawl_v1._check_by(p_actor, p_reason);
  perform pawl_v1._check_fence_seen(p_fence);
  perform pawl_v1._check_key('provider_key', v_new);
  select e.*
    into v_before
    from pawl.step as e
   where e.scope = p_scope
     and e.key = p_key
     and e.step = p_step
     for update;
  select count(*)::int as calls,
         bool_or(c.outcome = 'executed') as executed,
         max(c.not_after) filter (where c.fence > v_before.cleared and coalesce(c.outcome, 'ambiguous') = 'ambiguous') as open_until
    into v_seen
    from pawl.step_call as c
   where c.scope = p_scope
     and c.key = p_key
     and c.step = p_step
     and not c.probe;
  if v_before.status is distinct from 'failed_final' or v_seen.executed then
    return query
    select case when v_before.key is null then 'absent' else 'refused' end,
           jsonb_strip_nulls(jsonb_build_object('status', v_before.status, 'executed', nullif(v_seen.executed, false)));
    return;
  end if;
  if v_before.fence <> p_fence then
    return query
    select 'moved', jsonb_build_object('status', v_before.status, 'fence', v_before.fence);
    return;
  end if;
  if v_seen.open_until > clock_timestamp() then
    return query
    select 'early', jsonb_build_object('status', v_before.status,
                                       'retry_after_ms', ceil(extract(epoch from v_seen.open_until - clock_timestamp()) * 1000)::bigint);
    return;
  end if;
  if v_new = v_before.provider_key then
    raise exception 'the provider refused under the key %', v_new
      using errcode = 'P4001', hint = 'give another, or none: a random one is made';
  end if;
  if not coalesce((p_options ->> 'dry_run')::boolean, false) then
    update pawl.step as e
       set status = 'planned',
           cleared = e.fence,
           provider_key = v_new,
           memory_ends_at = null,
           updated_at = clock_timestamp(),
           failure_code = null,
           failure_message = null
     where e.scope = p_scope -- locked since its status was read
       and e.key = p_key
       and e.step = p_step
    returning e.*
         into v_after;
    insert into pawl.audit (actor, verb, target, reason, before, after)
    values (p_actor, 'step_again', pawl_v1._audit_target('step', p_scope, p_key, p_step), p_reason,
            pawl_v1._step_record(v_before), pawl_v1._step_record(v_after));
  end if;
  return query
  select case when v_after.key is null then 'would_renew' else 'renewed' end,
         jsonb_strip_nulls(jsonb_build_object('provider_key', v_after.provider_key, 'job', v_before.job_id, 'calls', v_seen.calls));
end
$$;

-- step_purge deletes finished steps whose memory has ended, and their calls, at most p_limit (1 to
-- 100,000). It also deletes planned steps of a job that is gone, of an ended command or of a row of
-- your table, unless a call of them is in doubt.
--
-- Steps in doubt or unknown are never deleted by age. Neither is a step of a job that still exists,
-- because a dead letter may be retried, or of a command that may run again.
--
-- Outcomes:
--   purged  The column purged is the number of steps. detail.next as of job_key_purge.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   older_than_ms  (0 to 10 years, default 24 h) Skip steps created since. The call reads no
--                  further, so raise it to the shortest retention_ms in use.
--   since          (timestamp) As of job_key_purge.
create or replace function pawl_v1.step_purge(p_limit int default 10000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- walk the age index in order: docs/decisions/0036-purging.md
set enable_sort = off
set enable_seqscan = off
as $$
declare
  v_before timestamptz := pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms', 86400000, 0, 315360000000));
  v_due    tid[];
  v_next   timestamptz;
  v_purged int;
begin
  perform pawl_v1._check_options(p_options, '{older_than_ms,since}');
  perform pawl_v1._check_int('limit', p_limit, 1, 100000);
  select array_agg(d.ctid), max(d.created_at) -- ctids: see job_key_purge
    into v_due, v_next
    from (
      select e.ctid, e.created_at
        from pawl.step as e
       where e.created_at < v_before
         and e.created_at >= pawl_v1._since(p_options)
         and e.expires_at < clock_timestamp()
         and (e.status in ('succeeded', 'failed_final')
              or e.status = 'planned' and (pawl_v1._step_doubts(e)).calls = 0)
         and not exists (select from pawl.job as j where j.id = e.job_id)
         and not exists ( -- the delivery's present job, which may not have begun
               select
                 from pawl.inbox as i
                 join pawl.job as j on j.id = i.job_id
                where i.consumer = substr(e.scope, length('inbox/') + 1)
                  and i.key = e.key
                  and e.scope like 'inbox/%')
         and not exists (
               select
                 from pawl.command as c
                where c.scope = substr(e.scope, length('command/') + 1)
                  and c.key = e.key
                  and e.scope like 'command/%'
                  and c.status not in ('succeeded', 'failed_final'))
       order by e.created_at
       limit p_limit
         for update skip locked
    ) as d;
  with gone as (
    delete from pawl.step as e
     where e.ctid = any (v_due)
       and e.expires_at < clock_timestamp()
       and e.status <> 'unknown'
    returning e.scope, e.key, e.step
  ), calls as materialized (
    select c.ctid as place
      from gone as g
     cross join lateral (
            select o.ctid from pawl.step_call as o where o.scope = g.scope and o.key = g.key and o.step = g.step limit 100000) as c
  ), evidence as (
    delete from pawl.step_call as c
     where c.ctid = any (array(select s.place from calls as s))
  )
  select count(*)
    into v_purged
    from gone;
  return query
  select 'purged', v_purged, jsonb_strip_nulls(jsonb_build_object('next', v_next));
end
$$;

-- steps shows each step with its evidence. The fence is the one that a verdict names. 'calls' is
-- the number of its calls, and in_doubt that of its calls in doubt. first_called_at is when the
-- first began, and last_not_after until when the last may have been sent. Look at status =
-- 'unknown' first, which has an index.
create or replace view pawl_v1.steps as
select e.scope,
       e.key,
       e.step,
       e.status,
       e.fence,
       e.recovery,
       e.provider,
       e.provider_key,
       e.reference,
       e.job_id,
       c.calls,
       c.in_doubt,
       c.first_called_at,
       c.last_not_after,
       e.memory_ends_at,
       e.failure_code,
       e.failure_message,
       e.created_at,
       e.updated_at,
       e.expires_at
  from pawl.step as e
 cross join lateral (
        select count(*) as calls,
               count(*) filter (where k.fence > e.cleared and coalesce(k.outcome, 'ambiguous') = 'ambiguous') as in_doubt,
               min(k.started_at) as first_called_at,
               max(k.not_after) as last_not_after
          from pawl.step_call as k
         where k.scope = e.scope
           and k.key = e.key
           and k.step = e.step
           and not k.probe) as c;
