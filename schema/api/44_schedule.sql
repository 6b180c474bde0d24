-- A schedule enqueues jobs again and again. Any number of keepers do so at once, each with
--
--   look  view schedules: those that are not paused and whose next_at is null or has come
--   tick  schedule_tick, with the fence it has seen: the jobs and the next tick are one transaction
--
-- A tick is a point in time, so after an outage it is still owed. Intervals are computed here, in
-- absolute time. Cron expressions are read by the keeper, which has a parser. Its ticks are checked
-- here, so that none is lost or made twice.
--
-- The job of a tick has the key 'schedule/NAME/MOMENT', and the headers 'pawl-schedule'
-- and 'pawl-tick' (the moment, in UTC).

-- _schedule_enqueue enqueues the job of one tick. Its key is the schedule and the time, so a tick
-- that comes twice has one job. The hash is that of the key: the payload may have changed.
create or replace function pawl_v1._schedule_enqueue(p_schedule pawl.schedule, p_at timestamptz)
returns table (outcome text, job_id bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_at  text := to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
  v_key text := 'schedule/' || p_schedule.name || '/' || v_at;
begin
  return query
  select e.outcome, e.job_id
    from pawl_v1.job_enqueue(p_schedule.queue, p_schedule.kind, p_schedule.payload,
           p_schedule.options || jsonb_build_object(
             'key', v_key,
             'hash', encode(sha256(convert_to(v_key, 'UTF8')), 'hex'),
             'headers', coalesce(nullif(p_schedule.options -> 'headers', 'null'), '{}')
               || jsonb_build_object('pawl-schedule', p_schedule.name, 'pawl-tick', v_at))) as e;
end
$$;

-- _schedule_record is a schedule as the audit keeps it, with the payload's length and SHA-256.
create or replace function pawl_v1._schedule_record(p_schedule pawl.schedule)
returns jsonb
language sql
stable
return to_jsonb(p_schedule) - 'payload'
  || jsonb_build_object('payload_octets', octet_length(p_schedule.payload), 'payload_sha256', encode(sha256(p_schedule.payload), 'hex'));

-- _schedule_after returns the first tick of an interval's grid after p_now.
create or replace function pawl_v1._schedule_after(p_schedule pawl.schedule, p_now timestamptz)
returns timestamptz
language sql
stable
return p_schedule.next_at
  + (floor(extract(epoch from p_now - p_schedule.next_at) * 1000 / p_schedule.every_ms) + 1)::bigint * p_schedule.every_ms * interval '1 millisecond';

create or replace function pawl_v1._check_schedule(p_name text, p_queue text, p_kind text, p_payload bytea, p_options jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_name is null or octet_length(p_name) not between 1 and 200 then
    raise exception 'the name of a schedule must have 1 to 200 octets, it has %', coalesce(octet_length(p_name), 0)
      using errcode = 'P4000', hint = 'pass the same short name at every call';
  end if;
  perform pawl_v1._check_scope('queue', p_queue);
  perform pawl_v1._check_scope('kind', p_kind);
  perform pawl_v1._check_payload(p_payload);
  perform pawl_v1._check_headers(p_options -> 'headers');
  perform pawl_v1._int_option(p_options, 'priority', 2, 1, 4), pawl_v1._int_option(p_options, 'max_attempts', 25, 1, 1000);
  if p_options ->> 'lane' is not null then
    perform pawl_v1._check_scope('lane', p_options ->> 'lane');
  end if;
  perform pawl_v1._check_lane_policy(coalesce(p_options ->> 'lane_policy', 'block'));
  if (p_options ->> 'cron' is null) = (p_options ->> 'every_ms' is null) then
    raise exception 'a schedule has either the option cron or the option every_ms'
      using errcode = 'P4004';
  end if;
  if p_options ->> 'time_zone' is not null and p_options ->> 'cron' is null then
    raise exception 'an interval has no time zone'
      using errcode = 'P4004', hint = 'it is counted in absolute time; pass cron for a time of day';
  end if;
  if p_options ->> 'cron' is not null then
    perform pawl_v1._check_scope('cron', p_options ->> 'cron');
    perform pawl_v1._check_scope('time_zone', coalesce(p_options ->> 'time_zone', 'UTC'));
  end if;
  if coalesce(p_options ->> 'missed', 'last') not in ('last', 'all') then
    raise exception 'option missed is last or all, not %', p_options ->> 'missed'
      using errcode = 'P4004';
  end if;
end
$$;

-- schedule_put creates a schedule, or changes the one of this name (1 to 200 octets). Call it each
-- time a program starts. If the plan is unchanged, the next tick stays. A tick that is due already
-- is still made, and an interval is counted from it. A new plan begins after now and makes no tick
-- that an earlier plan has made. A paused schedule stays paused.
--
-- If the schedule is due within a second, or a keeper has to read its expression, the commit of
-- your transaction notifies channel 'pawl_jobs'. The payload is 'schedules'. Keepers beside a
-- worker that listens look at once. Others find it at their next poll. next_at is null until a
-- keeper has read the expression.
--
-- Outcomes:
--   created    It is new.
--   changed    It has the given values now.
--   unchanged  It had them already.
--
-- Errors:
--   P4000  A name.
--   P4004  An argument.
--   22007  first_at is no moment.
--   40001  The schedule appeared and disappeared three times. Restart the transaction.
--   55P03  Another transaction has had it for more than 2 s.
--
-- Options:
--   every_ms   (100 to 31536000000) An interval, in absolute time. Give every_ms or 'cron'.
--   cron       (1 to 255 octets) An expression that a keeper reads.
--   time_zone  (1 to 255 octets, default 'UTC') The zone of 'cron'.
--   first_at   (a moment, as text, default after one interval, or the keeper's next tick) The first
--              tick. If it has passed, a created schedule is due at once, and a changed one ticks
--              at the next moment of its grid.
--   missed     ('last' or 'all', default 'last') Which of several ticks that were not made in time:
--              the newest, or all up to the newest 1,000.
--   priority, max_attempts, headers, lane, lane_policy
--              Of each job, as of job_enqueue.
create or replace function pawl_v1.schedule_put(p_name text, p_queue text, p_kind text, p_payload bytea, p_options jsonb)
returns table (outcome text, next_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_every  bigint := pawl_v1._int_option(p_options, 'every_ms', null, 100, 31536000000);
  v_now    timestamptz := clock_timestamp();
  v_new    pawl.schedule;
  v_before pawl.schedule;
begin
  perform pawl_v1._check_options(p_options, '{cron,time_zone,every_ms,first_at,missed,priority,max_attempts,headers,lane,lane_policy}');
  perform pawl_v1._check_schedule(p_name, p_queue, p_kind, p_payload, p_options);
  v_new.name := p_name;
  v_new.cron := p_options ->> 'cron';
  v_new.time_zone := case when v_new.cron is not null then coalesce(p_options ->> 'time_zone', 'UTC') end;
  v_new.every_ms := v_every;
  v_new.next_at := coalesce((p_options ->> 'first_at')::timestamptz, v_now + v_every * interval '1 millisecond');
  v_new.missed := coalesce(p_options ->> 'missed', 'last');
  v_new.queue := p_queue;
  v_new.kind := p_kind;
  v_new.payload := p_payload;
  v_new.options := p_options - '{cron,time_zone,every_ms,first_at,missed}'::text[];

  for v_try in 1..3 loop
    insert into pawl.schedule as s (name, next_at, since_at, every_ms, cron, time_zone, missed, queue, kind, payload, options)
    values (v_new.name, v_new.next_at, v_now, v_new.every_ms, v_new.cron, v_new.time_zone, v_new.missed, v_new.queue, v_new.kind,
            v_new.payload, v_new.options)
    on conflict do nothing;
    if found then
      perform pawl_v1._wake_keepers(v_new.next_at);
      return query
      select 'created', v_new.next_at, '{}'::jsonb;
      return;
    end if;
    select s.*
      into v_before
      from pawl.schedule as s
     where s.name = p_name
       for update;
    exit when found;
  end loop;
  if v_before.name is null then
    raise exception 'schedule % keeps appearing and disappearing', p_name
      using errcode = '40001', hint = 'restart the transaction';
  end if;

  -- A due tick is owed under the new plan too.
  if (v_before.cron, v_before.time_zone, v_before.every_ms) is distinct from (v_new.cron, v_new.time_zone, v_new.every_ms)
     and (v_before.paused or coalesce(v_before.next_at > v_now, true)) then
    v_new.since_at := greatest(v_now, v_before.since_at); -- clocks differ after a failover
    -- The old plan may have made ticks since then; their keys may be purged.
    if v_new.next_at <= v_new.since_at then
      v_new.next_at := case when v_every is not null then pawl_v1._schedule_after(v_new, v_new.since_at) end;
    end if;
  else
    v_new.since_at := v_before.since_at;
    v_new.next_at := v_before.next_at;
  end if;
  if (v_before.cron, v_before.time_zone, v_before.every_ms, v_before.missed, v_before.queue, v_before.kind, v_before.payload, v_before.options)
     is not distinct from
     (v_new.cron, v_new.time_zone, v_new.every_ms, v_new.missed, v_new.queue, v_new.kind, v_new.payload, v_new.options) then
    return query
    select 'unchanged', v_before.next_at, '{}'::jsonb;
    return;
  end if;
  update pawl.schedule as s
     set fence = nextval('pawl.fence_seq'),
         next_at = v_new.next_at,
         since_at = v_new.since_at,
         every_ms = v_new.every_ms,
         cron = v_new.cron,
         time_zone = v_new.time_zone,
         missed = v_new.missed,
         queue = v_new.queue,
         kind = v_new.kind,
         payload = v_new.payload,
         options = v_new.options
   where s.name = p_name;
  if not v_before.paused then
    perform pawl_v1._wake_keepers(v_new.next_at);
  end if;
  return query
  select 'changed', v_new.next_at, '{}'::jsonb;
end
$$;

-- schedule_tick enqueues the jobs of due ticks and moves the schedule to its next tick, in one
-- transaction. For an interval pass only the fence, because the ticks are counted here. For an
-- expression pass the ticks that are due and the next one. The ticks are the newest only or all, as
-- 'missed' says, ascending and at most 1,000. With no ticks and a next one, the call only sets the
-- next tick of a schedule without next_at.
--
-- Outcomes:
--   ticked      The column enqueued is the number of jobs. A tick whose key is known has its job
--               already and does not count. detail.skipped is the number of ticks of an interval
--               that were left out.
--   superseded  The schedule has another fence by now, or is paused. Look again.
--   not_due     Its next tick is in the future.
--   absent      It is gone.
--
-- Errors:
--   P4004  For an expression: ticks that are out of order, before the due one or in the future;
--          none although one is due; or no next one. For an interval: any ticks.
--   55P03  An open transaction has had it for more than 0.5 s.
create or replace function pawl_v1.schedule_tick(
  p_name    text,
  p_fence   bigint,
  p_ticks   timestamptz[] default null,
  p_next_at timestamptz default null
)
returns table (outcome text, enqueued int, next_at timestamptz, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms' -- the other due schedules wait meanwhile
as $$
declare
  v_now      timestamptz := clock_timestamp();
  v_schedule pawl.schedule;
  v_ticks    timestamptz[] := coalesce(p_ticks, '{}');
  v_next     timestamptz := p_next_at;
  v_missed   bigint;
  v_skipped  bigint := 0;
  v_last     timestamptz;
  v_enqueued int;
begin
  select s.*
    into v_schedule
    from pawl.schedule as s
   where s.name = p_name;
  if not found or v_schedule.fence <> p_fence or v_schedule.paused or v_schedule.next_at > v_now then
    return query
    select case
             when v_schedule.name is null then 'absent'
             when v_schedule.fence = p_fence and not v_schedule.paused then 'not_due'
             else 'superseded'
           end, 0, v_schedule.next_at, '{}'::jsonb;
    return;
  end if;

  if v_schedule.every_ms is not null and p_ticks is null and p_next_at is null then
    v_missed := floor(extract(epoch from v_now - v_schedule.next_at) * 1000 / v_schedule.every_ms)::bigint;
    v_skipped := case v_schedule.missed when 'all' then greatest(v_missed - 999, 0) else v_missed end;
    v_ticks := array(
      select v_schedule.next_at + n * v_schedule.every_ms * interval '1 millisecond'
        from generate_series(v_skipped, v_missed) as n);
    v_next := pawl_v1._schedule_after(v_schedule, v_now);
  else
    perform pawl_v1._check_ticks(v_schedule, v_ticks, v_next, v_now);
  end if;
  v_last := v_ticks[cardinality(v_ticks)];

  update pawl.schedule as s
     set fence = nextval('pawl.fence_seq'),
         next_at = v_next,
         since_at = coalesce(v_last, s.since_at),
         last_at = coalesce(v_last, s.last_at)
   where s.name = p_name
     and s.fence = p_fence;
  if not found then
    return query
    select 'superseded', 0, null::timestamptz, '{}'::jsonb;
    return;
  end if;
  select count(*) filter (where e.outcome = 'enqueued')
    into v_enqueued
    from unnest(v_ticks) with ordinality as t (at, n)
   cross join lateral pawl_v1._schedule_enqueue(v_schedule, t.at) as e;
  return query
  select 'ticked', v_enqueued, v_next, case when v_skipped > 0 then jsonb_build_object('skipped', v_skipped) else '{}' end;
end
$$;

-- _check_ticks checks what a keeper passes for a cron schedule. No tick is repeated or lost.
create or replace function pawl_v1._check_ticks(p_schedule pawl.schedule, p_ticks timestamptz[], p_next_at timestamptz, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_after timestamptz := coalesce(p_schedule.next_at - interval '1 microsecond', p_schedule.since_at);
  v_wrong text;
begin
  perform pawl_v1._check_batch('ticks', coalesce(cardinality(p_ticks), 0), 1000, coalesce(cardinality(p_ticks), 0));
  v_wrong := case
    when p_schedule.every_ms is not null then 'an interval is counted by schedule_tick itself'
    when p_next_at is null then 'the next tick of a cron expression is required'
    when p_schedule.next_at is not null and cardinality(p_ticks) = 0 then 'a tick is due, and none is named'
    when array_position(p_ticks, null) is not null then 'a tick is null'
    when exists (
           select
             from unnest(v_after || p_ticks || p_next_at) with ordinality as t (at, n)
             join unnest(p_ticks || p_next_at) with ordinality as u (at, n) on u.n = t.n
            where u.at <= t.at) then 'ticks must ascend, from the one that is due to the next'
    when p_ticks[cardinality(p_ticks)] > p_now then 'a tick lies in the future'
  end;
  if v_wrong is not null then
    raise exception 'schedule %: %', p_schedule.name, v_wrong
      using errcode = 'P4004', hint = 'read pawl_v1.schedules again';
  end if;
end
$$;

-- _schedule_operate checks a verb's arguments and returns the row locked, or null.
create or replace function pawl_v1._schedule_operate(p_name text, p_actor text, p_reason text)
returns pawl.schedule
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_schedule pawl.schedule;
begin
  perform pawl_v1._check_by(p_actor, p_reason);
  select s.*
    into v_schedule
    from pawl.schedule as s
   where s.name = p_name
     for update;
  return v_schedule;
end
$$;

-- p_after null: deleted.
create or replace function pawl_v1._schedule_audit(p_verb text, p_actor text, p_reason text, p_before pawl.schedule, p_after pawl.schedule)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pawl.audit (actor, verb, target, reason, before, after)
  values (p_actor, p_verb, pawl_v1._audit_target('schedule', (p_before).name), p_reason, pawl_v1._schedule_record(p_before),
          case when (p_after).name is not null then pawl_v1._schedule_record(p_after) end)
$$;

-- schedule_pause stops a schedule. No tick is enqueued until it is resumed, not even one that is
-- due already. Enqueued jobs stay. It leaves a record in pawl.audit, with target 'schedule NAME'.
--
-- Outcomes:
--   paused     Done.
--   unchanged  It was paused. There is no record.
--   absent     There is no such schedule.
--
-- Errors:
--   P4004  Actor or reason.
--   55P03  An open transaction has had it for more than 2 s. Nothing changed.
create or replace function pawl_v1.schedule_pause(p_name text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.schedule := pawl_v1._schedule_operate(p_name, p_actor, p_reason);
  v_after  pawl.schedule;
begin
  if v_before.name is null or v_before.paused then
    return query
    select case when v_before.paused then 'unchanged' else 'absent' end, '{}'::jsonb;
    return;
  end if;
  update pawl.schedule as s
     set fence = nextval('pawl.fence_seq'),
         paused = true
   where s.name = p_name
  returning s.*
       into v_after;
  perform pawl_v1._schedule_audit('schedule_pause', p_actor, p_reason, v_before, v_after);
  return query
  select 'paused', '{}'::jsonb;
end
$$;

-- schedule_resume lets a schedule continue with its next tick from now on. Ticks that were due
-- meanwhile are dropped, also with missed 'all'. An interval keeps its grid. If the tick of an
-- expression has passed, a keeper computes the next. It notifies keepers as schedule_put does, and
-- leaves a record as schedule_pause does. To make up for a tick, call schedule_run_now.
--
-- Outcomes:
--   resumed    detail.next_at is the next tick. It is absent if a keeper has to compute it.
--   unchanged  It was not paused. There is no record.
--   absent     There is no such schedule.
--
-- Errors:
--   P4004, 55P03  As of schedule_pause.
create or replace function pawl_v1.schedule_resume(p_name text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.schedule := pawl_v1._schedule_operate(p_name, p_actor, p_reason);
  v_after  pawl.schedule;
  v_now    timestamptz := clock_timestamp();
begin
  if v_before.name is null or not v_before.paused then
    return query
    select case when v_before.name is null then 'absent' else 'unchanged' end, '{}'::jsonb;
    return;
  end if;
  update pawl.schedule as s
     set fence = nextval('pawl.fence_seq'),
         paused = false,
         since_at = greatest(v_now, s.since_at),
         next_at = case
           when s.next_at > v_now then s.next_at
           when s.every_ms is not null then pawl_v1._schedule_after(v_before, v_now)
         end
   where s.name = p_name
  returning s.*
       into v_after;
  perform pawl_v1._schedule_audit('schedule_resume', p_actor, p_reason, v_before, v_after);
  perform pawl_v1._wake_keepers(v_after.next_at);
  return query
  select 'resumed', jsonb_strip_nulls(jsonb_build_object('next_at', v_after.next_at));
end
$$;

-- schedule_run_now enqueues a job now, beside the plan, which stays unchanged. This works for a
-- paused schedule too. Called twice it enqueues two. It leaves a record as schedule_pause does.
--
-- Outcomes:
--   enqueued  detail.job is the job.
--   absent    There is no such schedule.
--
-- Errors:
--   P4004, 55P03  As of schedule_pause.
create or replace function pawl_v1.schedule_run_now(p_name text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_schedule pawl.schedule := pawl_v1._schedule_operate(p_name, p_actor, p_reason);
  v_job      bigint;
begin
  if v_schedule.name is null then
    return query
    select 'absent', '{}'::jsonb;
    return;
  end if;
  select e.job_id
    into v_job
    from pawl_v1._schedule_enqueue(v_schedule, clock_timestamp()) as e;
  perform pawl_v1._schedule_audit('schedule_run_now', p_actor, p_reason, v_schedule, v_schedule);
  return query
  select 'enqueued', jsonb_build_object('job', v_job);
end
$$;

-- schedule_delete deletes a schedule, and with it the record of its ticks. Jobs that it has
-- enqueued stay. If a program still calls schedule_put, it creates the schedule again. If its
-- first_at has passed, ticks from then on are due again. It leaves a record as schedule_pause does.
--
-- Outcomes:
--   deleted  Done.
--   absent   There is no such schedule.
--
-- Errors:
--   P4004, 55P03  As of schedule_pause.
create or replace function pawl_v1.schedule_delete(p_name text, p_actor text, p_reason text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.schedule := pawl_v1._schedule_operate(p_name, p_actor, p_reason);
begin
  if v_before.name is null then
    return query
    select 'absent', '{}'::jsonb;
    return;
  end if;
  delete from pawl.schedule as s
   where s.name = p_name;
  perform pawl_v1._schedule_audit('schedule_delete', p_actor, p_reason, v_before, null);
  return query
  select 'deleted', '{}'::jsonb;
end
$$;

-- schedules shows every schedule, without its payload. last_at is the last tick that was made, and
-- no tick up to since_at is owed. If next_at is null, a keeper has to read the expression. The
-- column options has those of its jobs.
create or replace view pawl_v1.schedules as
select s.name,
       s.cron,
       s.time_zone,
       s.every_ms,
       s.missed,
       s.paused,
       s.next_at,
       s.last_at,
       s.since_at,
       s.queue,
       s.kind,
       s.options,
       octet_length(s.payload) as payload_octets,
       s.fence,
       s.created_at
  from pawl.schedule as s;
