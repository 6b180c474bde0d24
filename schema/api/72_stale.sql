-- Work of all kinds that waits for a decision or a takeover, with advice.

-- _steps_of_job returns the steps of a job. Their scope is its queue and their key its id, '@' and
-- the time of enqueueing. The steps of a stored delivery are under its key.
create or replace function pawl_v1._steps_of_job(p_job pawl.job)
returns setof pawl.step
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select e.*
    from pawl.step as e
   where e.scope = 'job/' || p_job.queue
     and e.key > p_job.id || '@'
     and e.key < p_job.id || 'A'
   union all
  select e.*
    from pawl.step as e
   where e.scope = p_job.queue
     and e.key = coalesce(p_job.headers ->> 'pawl-step-key', p_job.headers ->> 'pawl-inbox-key');
end
$$;

-- _dead_letter_advice says what an operator may do about a dead letter, and what may have happened.
create or replace function pawl_v1._dead_letter_advice(p_job pawl.job)
returns text
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_code    text := p_job.last_errors -> -1 ->> 'code';
  v_refused text;
  v_doubted text;
begin
  select string_agg(s.step, ', ' order by s.step) filter (where s.status = 'failed_final'),
         string_agg(s.step || ' (key ' || s.provider_key || ')', ', ' order by s.step)
           filter (where s.status = 'planned' and (pawl_v1._step_doubts(s)).calls > 0)
    into v_refused, v_doubted
    from pawl_v1._steps_of_job(p_job) as s;
  return case
    when v_code = 'mismatch' then 'it came under a known key with another payload: the first took effect, or is a job of its own, and a retry runs '
                               || 'this one beside it; job_discard, unless both are wanted'
    when v_code = 'P4051' then 'it is older than what is remembered, and may have taken effect: find out, then job_discard or job_retry'
    when v_code = '08007' then 'its handler ended the transaction that it was lent, and what it wrote may be durable: look for it, then job_discard if it is '
                            || 'there, job_retry if it is not'
    when v_code = 'P4002' then 'it made another request under a key or a step that it had used before, and a retry by the same build meets that again: find out '
                            || coalesce('from the provider whether the call of step ' || v_doubted || ' took effect', 'whether the first request took effect')
                            || ', then job_discard, and enqueue what is still to be done under a new key'
    when v_doubted is not null then 'a call of step ' || v_doubted || ' may have been executed: job_retry is safe for it, the step asks, calls again or '
                                    || 'becomes unknown as its recovery says; ask the provider before job_discard'
    when v_refused is not null then 'step ' || v_refused || ' was refused for good, and a retry meets the stored refusal at once: if it may be accepted '
                                    || 'now, step_again (a new key), then job_retry; else job_discard'
    when p_job.crashes > 0 then 'its process died or froze ' || p_job.crashes || ' times while it ran: what it wrote here was rolled back, but calls of other '
                                || 'systems outside of steps may have been executed. Ask those systems first; then job_retry if nothing happened, job_discard if it did'
    else 'repair the cause, then job_retry or job_discard'
  end;
end
$$;

-- stale_classify lists rows that make no progress until an operator decides or a process notices
-- them, with advice. p_kind is 'command', 'step', 'job', or null for all. It changes nothing and
-- reads the whole tables.
--
-- 'scope' and 'key' name the row: of a step its owner's, with the step in detail; of a job the
-- queue and the id. detail of a command or a step has the fence that a verdict takes. That of a
-- step also has 'step', 'recovery', 'provider' and provider_key. That of a job has 'attempts',
-- 'crashes', 'code' (of its last error) and message_key (of the delivery that it is).
--
-- Pawl does not know whether a row of your table (package guard) is still retried, or whether a
-- client repeats a command that failed. A step of such an owner is 'orphaned' if no attempt has
-- touched it for 2 hours. The column reason says so.
--
-- In three cases the advice says that a retry may take effect a second time: a delivery under a
-- known key with another payload; a delivery that came later than is remembered; and a job with the
-- code 08007, whose handler ended its transaction itself.
--
-- In Go, ops.Stales takes probes, one for each scope, that look into your own tables. If a probe
-- finds that a row took effect, its class is 'already_succeeded' (ops.AlreadySucceeded).
--
-- Values of class:
--   unknown      It cannot be found out whether it took effect. It needs a verdict.
--   abandoned    Its attempt is gone. The next claim or sweep takes it.
--   orphaned     A call in doubt that no attempt will follow up: its job is dead, cancelled or
--                over, or its command has ended.
--   dead_letter  It is not retried.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   limit   (1 to 1,000,000, default all) The most rows of a kind and class, the oldest first.
--   advice  (boolean, default true) False leaves the advice out, which takes most of the time.
create or replace function pawl_v1.stale_classify(p_kind text default null, p_options jsonb default '{}')
returns table (kind text, scope text, key text, class text, reason text, advice text, since timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
stable
as $$
declare
  v_limit  bigint;
  v_advice boolean := coalesce((p_options ->> 'advice')::boolean, true);
begin
  perform pawl_v1._check_options(p_options, '{limit,advice}');
  v_limit := pawl_v1._int_option(p_options, 'limit', null, 1, 1000000);
  if p_kind not in ('command', 'step', 'job') then
    raise exception 'the kind is command, step or job, not %', p_kind
      using errcode = 'P4004';
  end if;
  return query
  select 'command',
         c.scope::text,
         c.key::text,
         case c.status when 'unknown' then 'unknown' else 'abandoned' end,
         case
           when c.status = 'unknown' then 'an attempt stopped renewing its lease, and its work is not declared repeatable'
           when c.lease_expires_at is null then 'its claim was committed without an end'
           else 'its lease is over'
         end,
         case when v_advice then c.advice end,
         c.updated_at,
         jsonb_build_object('fence', c.fence)
    from (
      (select s.* from pawl_v1.stale_commands as s where s.status = 'unknown' order by s.updated_at limit v_limit)
       union all
      (select s.* from pawl_v1.stale_commands as s where s.status <> 'unknown' order by s.updated_at limit v_limit)) as c
   where p_kind is null or p_kind = 'command'
   union all
  select 'step',
         e.scope::text,
         e.key::text,
         case e.status when 'unknown' then 'unknown' else 'orphaned' end,
         case
           when e.status = 'unknown' and e.recovery = 'keyed' then 'a call went unanswered, and the provider may have forgotten its key'
           when e.status = 'unknown' then 'a call went unanswered'
           when j.id is not null then 'a call went unanswered, and its job is ' || j.status
           when e.job_id is not null then 'a call went unanswered, and its job has ended'
           when e.command in ('succeeded', 'failed_final') then 'a call went unanswered, and its command has ended'
           when e.scope like 'guard/%' then 'a call went unanswered, and no attempt of its row has followed for 2 hours'
           else 'a call went unanswered, and no attempt of its owner has followed for 2 hours'
         end,
         case
           when not v_advice then null
           when e.status = 'unknown' then 'ask the provider for ' || e.provider_key || ', then step_settle; or run step.Reconcile'
           when j.id is not null then 'retry the job: its step asks, calls again or becomes unknown, as the recovery says'
           when e.scope like 'guard/%' then 'look at row ' || e.key || ' of ' || substr(e.scope, length('guard/') + 1) || ': make it pending, and its step asks, calls '
                                         || 'again or becomes unknown, as the recovery says; if the row shall stay as it is, ask the provider for ' || e.provider_key
           else 'ask the provider for ' || e.provider_key || ' whether it was executed; only a new attempt of its owner can record it'
         end,
         e.updated_at,
         jsonb_build_object('step', e.step, 'fence', e.fence, 'recovery', e.recovery, 'provider', e.provider, 'provider_key', e.provider_key)
    from (
      (select s.*, null::text as command from pawl_v1.steps as s where s.status = 'unknown' order by s.updated_at limit v_limit)
       union all
      (select s.*, c.status::text
         from pawl_v1.steps as s
         left join pawl.job as k on k.id = s.job_id
         left join pawl.command as c
           on c.scope = substr(s.scope, length('command/') + 1)
          and c.key = s.key
          and s.scope like 'command/%'
        where s.status = 'planned'
          and s.in_doubt > 0
          and s.last_not_after < clock_timestamp()
          and case
                when s.job_id is not null then coalesce(k.status, 'succeeded') in ('dead_letter', 'cancelled', 'succeeded')
                when c.status in ('succeeded', 'failed_final') then true
                when c.status in ('processing', 'unknown') then false -- the command is listed itself
                else greatest(s.updated_at, s.last_not_after) < clock_timestamp() - interval '2 hours'
              end
        order by s.updated_at
        limit v_limit)) as e
    left join pawl.job as j on j.id = e.job_id
   where p_kind is null or p_kind = 'step'
   union all
  select 'job',
         j.queue::text,
         j.id::text,
         case j.status when 'processing' then 'abandoned' else j.status::text end,
         case
           when j.status = 'processing' then 'its lease is over'
           else coalesce(j.last_errors -> -1 ->> 'error', 'it says nothing')
         end,
         case
           when not v_advice then null
           when j.status = 'processing' then 'nothing: the sweep gives it back; if it stays, no worker is running'
           when j.status = 'unknown' then 'settle its step: see kind step'
           else pawl_v1._dead_letter_advice(j)
         end,
         j.available_at,
         jsonb_strip_nulls(jsonb_build_object('attempts', j.attempts, 'crashes', j.crashes, 'code', j.last_errors -> -1 ->> 'code',
                                              'message_key', j.headers ->> 'pawl-key'))
    from (
      (select o.id from pawl.job as o where o.status = 'dead_letter' order by o.id limit v_limit)
       union all
      (select o.id from pawl.job as o where o.status = 'unknown' order by o.id limit v_limit)
       union all
      (select o.id
         from pawl.job as o
         left join pawl.worker as w on w.id = o.claimed_by
        where o.status = 'processing'
          and coalesce(w.seen_at + w.lease, o.lease_expires_at, '-infinity') < clock_timestamp()
        order by o.id
        limit v_limit)) as f
    join pawl.job as j on j.id = f.id
   where p_kind is null or p_kind = 'job';
end
$$;
