-- The ends of an attempt: hold, finish, fail, release. A stale attempt changes nothing.

create or replace function pawl_v1._error_pushed(p_errors jsonb, p_error jsonb, p_attempt int, p_fence bigint, p_worker bigint, p_lease_ended timestamptz)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select jsonb_agg(e.entry order by e.n)
      from (
        select h.entry, h.n
          from jsonb_array_elements(
                 coalesce(p_errors, '[]') || jsonb_build_array(jsonb_build_object(
                   'at', clock_timestamp(),
                   'attempt', p_attempt,
                   'code', p_error ->> 'code',
                   'error', left(p_error ->> 'error', 4000)) || jsonb_strip_nulls(jsonb_build_object(
                   'fence', p_fence,
                   'worker', (select w.name from pawl.worker as w where w.id = p_worker),
                   'lease_ended_at', case when isfinite(p_lease_ended) then p_lease_ended end)))
               ) with ordinality as h (entry, n)
         order by h.n desc
         limit 10
      ) as e);
end
$$;

-- _push_error appends to the error history: the last 10 errors, each cut to 4,000 characters. An
-- entry has the attempt's fence and worker if known, and the end of its lease if it ended by that.
create or replace function pawl_v1._push_error(p_errors jsonb, p_error jsonb, p_attempt int, p_fence bigint default null, p_worker bigint default null,
                                               p_lease_ended timestamptz default null)
returns jsonb
language sql
return case when p_error is null then p_errors else pawl_v1._error_pushed(p_errors, p_error, p_attempt, p_fence, p_worker, p_lease_ended) end;

-- _raise_fence_lost raises P4020. DETAIL is the state of the job: absent (finished by a successor
-- or by your own lost COMMIT, or discarded), cancelled, dead_letter, or superseded.
create or replace function pawl_v1._raise_fence_lost(p_id bigint, p_fence bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
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

-- _job_wait locks a job that another transaction has locked. After 2 s it raises 55P03. It is a
-- separate function, because setting a timeout costs more than most calls, which need not wait.
create or replace function pawl_v1._job_wait(p_id bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  perform
     from pawl.job as j
    where j.id = p_id
      for update;
end
$$;

-- job_hold locks a claimed job's row and checks the fence. Call it first in the transaction that
-- does the work. A stale attempt then stops before it writes. While the transaction is open, no
-- other worker takes the job over. The example is under job_finish.
--
-- Outcomes:
--   held  The row is locked until this transaction ends.
--
-- Errors:
--   P4020  You do not hold the job. DETAIL is its state: 'superseded', 'dead_letter', 'cancelled',
--          or 'absent' (discarded, or finished by a successor or by your own COMMIT whose reply was
--          lost).
--   55P03  Another transaction has had the row for more than 2 s. The state is not known yet.
create or replace function pawl_v1.job_hold(p_id bigint, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_status text;
  v_fence  bigint;
begin
  select j.status, j.fence
    into v_status, v_fence
    from pawl.job as j
   where j.id = p_id
     for update skip locked;
  if not found then
    perform pawl_v1._job_wait(p_id);
    select j.status, j.fence
      into v_status, v_fence
      from pawl.job as j
     where j.id = p_id;
  end if;
  if v_status is distinct from 'processing' or v_fence is distinct from p_fence then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select 'held', '{}'::jsonb;
end
$$;

-- job_finish ends a job with success. The row is deleted, or archived if its queue has an archive:
-- see queue_set. Call it in the transaction that did the work, so that both commit together.
--
-- P4020 aborts the transaction and your rows with it, unless you catch it in a savepoint. Then the
-- rows before the savepoint survive, so do not catch it.
--
-- Outcomes:
--   finished  The job ends once this transaction commits.
--
-- Errors:
--   P4020, 55P03  As of job_hold.
--
-- Members of detail, if the job was in a lane:
--   promoted  The number of jobs that may be claimed once you have committed.
--   skipped   Ids of lanes that another transaction has locked. Call lane_promote for each after
--             your commit. If you do not, lane_sweep finds them.
create or replace function pawl_v1.job_finish(p_id bigint, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lane bigint;
begin
  for v_try in 1..2 loop
    delete from pawl.job as j
     where j.id = (
             select l.id
               from pawl.job as l
              where l.id = p_id
                and l.status = 'processing'
                and l.fence = p_fence
                for update skip locked)
       and j.queue <> all (array(select q.name from pawl.queue as q where q.archive))
    returning j.lane_id
         into v_lane;
    if not found then
      select j.lane_id
        into v_lane
        from pawl.job as j
       where j.id = p_id
         and j.status = 'processing'
         and j.fence = p_fence
         and j.queue = any (array(select q.name from pawl.queue as q where q.archive))
         for update skip locked;
      if found then
        perform pawl_v1._archive(array[p_id]);
      end if;
    end if;
    if found then
      return query
      select 'finished', case when v_lane is null then '{}' else pawl_v1._lanes_free(array[v_lane]) end;
      return;
    end if;
    perform
       from pawl.job as j
      where j.id = p_id
        and j.fence = p_fence;
    exit when not found;
    perform pawl_v1._job_wait(p_id);
  end loop;
  perform pawl_v1._raise_fence_lost(p_id, p_fence);
end
$$;

-- _jobs_wait waits, in id order, for jobs that another transaction has locked: up to p_ms for one
-- and for all. The usual holder is a claim with an older snapshot, which shows the row still
-- pending. PostgreSQL locks the newest version of a row before it tests it again. The claim does
-- not take that row, but holds its lock until it commits.
create or replace function pawl_v1._jobs_wait(p_ids bigint[], p_ms int)
returns void
language plpgsql
set lock_timeout = '2s' -- so that the function's end restores the setting
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id    bigint;
  v_since timestamptz := clock_timestamp();
begin
  perform set_config('lock_timeout', p_ms::text, true);
  for v_id in select w.id from unnest(p_ids) as w (id) order by w.id loop
    begin
      perform from pawl.job as j where j.id = v_id for update;
    exception
      when lock_not_available or deadlock_detected then
        return;
    end;
    exit when clock_timestamp() > v_since + p_ms * interval '1 millisecond';
  end loop;
end
$$;

-- _jobs_elsewhere returns those of p_ids that are still held with their fence but locked by another
-- transaction. p_locked are the ones that this transaction has locked.
create or replace function pawl_v1._jobs_elsewhere(p_ids bigint[], p_fences bigint[], p_locked bigint[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return array(
    select j.id
      from pawl.job as j
      join unnest(p_ids, p_fences) as g (id, fence) on g.id = j.id
     where j.id = any (array(select unnest(p_ids)))
       and j.id <> all (p_locked)
       and j.status = 'processing'
       and j.fence = g.fence);
end
$$;

-- job_hold_many is job_hold for up to 500 jobs, in the order of their ids. It does not raise P4020:
-- do the work of the held ones, and finish exactly those. It waits for rows that another
-- transaction has locked, 2 s at most in all. The example is under job_finish_many.
--
-- Outcomes:
--   held    Locked until this transaction ends.
--   stale   This attempt no longer holds the job: drop it.
--   locked  Another transaction has kept the row locked for that long. The state is not known yet.
--
-- Errors:
--   P4004  The arrays.
create or replace function pawl_v1.job_hold_many(p_ids bigint[], p_fences bigint[])
returns table (id bigint, outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked bigint[];
  v_fences bigint[]; -- of v_locked; null where the job is not processing
  v_rest   bigint[];
begin
  perform pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0));
  for v_try in 1..2 loop
    with locked as (
      select j.id, j.status, j.fence
        from pawl.job as j
       where j.id = any (array(select unnest(p_ids))) -- see job_claim
       order by j.id
         for update skip locked
    )
    select coalesce(array_agg(l.id), '{}'), array_agg(case l.status when 'processing' then l.fence end)
      into v_locked, v_fences
      from locked as l;
    exit when v_try = 2 or cardinality(v_locked) >= cardinality(p_ids);
    v_rest := pawl_v1._jobs_elsewhere(p_ids, p_fences, v_locked);
    exit when cardinality(v_rest) = 0;
    perform pawl_v1._jobs_wait(v_rest, 2000);
  end loop;
  return query
  select g.id, pawl_v1._holding(g.id, l.id is not null, coalesce(l.fence = g.fence, false)), '{}'::jsonb
    from unnest(p_ids, p_fences) as g (id, fence)
    left join unnest(v_locked, v_fences) as l (id, fence) on l.id = g.id
   order by g.id;
end
$$;

-- _locked_or_stale classifies a job whose row this transaction could not lock.
create or replace function pawl_v1._locked_or_stale(p_id bigint)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from pawl.job as j where j.id = p_id;
  return case when found then 'locked' else 'stale' end;
end
$$;

create or replace function pawl_v1._holding(p_id bigint, p_locked boolean, p_ours boolean)
returns text
language sql
return case
  when p_locked then case when p_ours then 'held' else 'stale' end
  else pawl_v1._locked_or_stale(p_id)
end;

-- job_finish_many is job_finish for up to 500 jobs, in the order of their ids: all or none. Call it
-- in the transaction that did the work. For jobs in lanes, the detail of the first row is that of
-- job_finish for all of them.
--
-- Outcomes:
--   finished  The job ends once this transaction commits.
--   stale     Only with skip_stale: this attempt no longer holds the job.
--   locked    Only with skip_stale: another transaction has the row. Try again.
--
-- Errors:
--   P4020  One of them is not held with that fence.
--   55P03  Another transaction has had the row of one of them for 2 s. Restart.
--   P4004  The arrays.
--
-- Options:
--   skip_stale  (boolean) For work that has already committed elsewhere. Neither P4020 nor 55P03 is
--               raised, the other jobs are finished, and the wait is at most 250 ms.
create or replace function pawl_v1.job_finish_many(p_ids bigint[], p_fences bigint[], p_options jsonb default '{}')
returns table (id bigint, outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_strict   boolean := not coalesce((p_options ->> 'skip_stale')::boolean, false);
  v_todo     bigint[] := p_ids;
  v_locked   bigint[];
  v_gone     bigint[];
  v_fences   bigint[]; -- of v_gone
  v_lanes    bigint[];
  v_kept     bigint[]; -- of v_locked, those whose queue has an archive
  v_before   record;   -- locked and finished by the first try, if there is a second
  v_lost     record;
  v_said     text[] := '{}';
  v_ids      bigint[] := '{}';
begin
  perform pawl_v1._check_options(p_options, '{skip_stale}'),
          pawl_v1._check_batch('ids', coalesce(cardinality(p_ids), 0), 500, coalesce(cardinality(p_fences), 0));
  for v_try in 1..2 loop
    with locked as (
      select j.id, j.status, j.fence, j.queue = any (array(select q.name from pawl.queue as q where q.archive)) as kept
        from pawl.job as j
       where j.id = any (array(select unnest(v_todo))) -- see job_claim
       order by j.id
         for update skip locked
    ), gone as (
      delete from pawl.job as j
       where j.id = any (array( -- no join: the planner may read the whole table for one
               select l.id
                 from locked as l
                 join unnest(p_ids, p_fences) as g (id, fence) on g.id = l.id
                where l.status = 'processing'
                  and not l.kept
                  and l.fence = g.fence))
      returning j.id, j.fence, j.lane_id
    )
    select array(select l.id from locked as l),
           array(select l.id from locked as l where l.kept),
           array_agg(d.id order by d.id),
           array_agg(d.fence order by d.id),
           array_agg(d.lane_id) filter (where d.lane_id is not null)
      into v_locked, v_kept, v_gone, v_fences, v_lanes
      from gone as d;

    if cardinality(v_kept) > 0 then
      select k.gone, k.fences, k.lanes
        into v_gone, v_fences, v_lanes
        from pawl_v1._archive_held(v_kept, p_ids, p_fences, v_gone, v_fences, v_lanes) as k;
    end if;
    if v_try = 2 then
      v_locked := v_before.locked || v_locked;
      v_gone := v_before.gone || v_gone;
      v_fences := v_before.fences || v_fences;
      v_lanes := v_before.lanes || v_lanes;
      exit;
    end if;
    exit when cardinality(v_gone) = cardinality(p_ids); -- the usual case
    v_todo := pawl_v1._jobs_elsewhere(p_ids, p_fences, v_locked);
    exit when cardinality(v_todo) = 0;
    select v_locked as locked, v_gone as gone, v_fences as fences, v_lanes as lanes
      into v_before;
    perform pawl_v1._jobs_wait(v_todo, case when v_strict then 2000 else 250 end);
  end loop;
  if cardinality(v_gone) = cardinality(p_ids) then
    return query
    select d.id, 'finished', case when d.n = 1 and v_lanes is not null then pawl_v1._lanes_free(v_lanes) else '{}' end
      from unnest(v_gone) with ordinality as d (id, n)
     order by d.n;
    return;
  end if;
  for v_lost in
    select g.id,
           g.fence,
           case when d.id is not null then 'finished' else pawl_v1._holding(g.id, g.id = any (v_locked), false) end as outcome
      from unnest(p_ids, p_fences) as g (id, fence)
      left join unnest(v_gone, v_fences) as d (id, fence) on d.id = g.id and d.fence = g.fence
     order by g.id
  loop
    if v_strict and v_lost.outcome = 'locked' then
      raise exception 'job % is locked by another transaction', v_lost.id
        using errcode = '55P03', hint = 'nothing is known yet; restart the transaction';
    elsif v_strict and v_lost.outcome <> 'finished' then
      perform pawl_v1._raise_fence_lost(v_lost.id, v_lost.fence);
    end if;
    v_ids := v_ids || v_lost.id;
    v_said := v_said || v_lost.outcome;
  end loop;
  return query
  select e.id, e.outcome,
         case when e.n = 1 and v_lanes is not null then pawl_v1._lanes_free(v_lanes) else '{}' end
    from unnest(v_ids, v_said) with ordinality as e (id, outcome, n)
   order by e.n;
end
$$;

-- job_fail ends an attempt with an error. p_error is {"error": text, "code": text}. The last 10
-- errors are kept, each cut to 4,000 characters.
--
-- A job in a lane keeps its turn while it is retried or waits for a verdict. As a dead letter it
-- follows the lane's policy: see lane_policy. As 'cancelled' it gives up its turn. If the next job
-- gets the turn, detail is that of job_finish.
--
-- Outcomes:
--   retry        The job is pending again, due at available_at.
--   dead_letter  No attempt is left, or 'final' was true. The payload and the errors stay.
--   cancelled    'cancel' was true. The job is not retried, and it is no dead letter. The payload
--                and the errors stay.
--   unknown      'unknown' was true, and a step of the job is unknown: it waits for a verdict
--                (step_settle).
--
-- Errors:
--   P4020, 55P03  As of job_hold.
--   P4004         An argument.
--
-- Options:
--   retry_in_ms    (0 to a year, default 1000) The earliest next attempt, from now.
--   final          (boolean) Make the job a dead letter.
--   cancel         (boolean) Cancel the job. It goes before 'final'.
--   unknown        (boolean) Wait for a verdict. It goes before both, unless the step was settled
--                  meanwhile.
--   wait_limit_ms  (1 to a year, default none) The job waits for what p_error says. The attempt is
--                  not charged, and the error is recorded once. If its last error is the same and
--                  older than the limit, the job becomes a dead letter. It is due at the limit at
--                  the latest.
create or replace function pawl_v1.job_fail(p_id bigint, p_fence bigint, p_error jsonb, p_options jsonb default '{}')
returns table (outcome text, available_at timestamptz, attempts int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_job     pawl.job;
  v_unknown boolean := false;
  v_error   jsonb := p_error;
  v_limit   interval := pawl_v1._int_option(p_options, 'wait_limit_ms', null, 1, 31536000000) * interval '1 millisecond';
  v_since   timestamptz;
  v_waits   boolean; -- null: it does not wait. False: it has waited for too long.
begin
  perform pawl_v1._check_options(p_options, '{retry_in_ms,final,cancel,unknown,wait_limit_ms}');
  if v_limit is not null then
    -- Another error in between, also that of an earlier limit, begins another wait.
    select (j.last_errors -> -1 ->> 'at')::timestamptz
      into v_since
      from pawl.job as j
     where j.id = p_id and j.fence = p_fence
       and j.last_errors -> -1 ->> 'error' = left(p_error ->> 'error', 4000);
    v_waits := coalesce(v_since > clock_timestamp() - v_limit, true);
    if not v_waits then
      v_error := p_error || jsonb_build_object('error', format('%s: since %s, longer than %s s', left(p_error ->> 'error', 3900),
                   to_char(v_since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), trunc(extract(epoch from v_limit), 3)));
    end if;
  end if;
  if (p_options ->> 'unknown')::boolean then
    -- A verdict may be arriving now. Lock the job's row first, as step_settle does.
    perform from pawl.job as j where j.id = p_id for update;
    perform from pawl.step as e where e.job_id = p_id and e.status = 'unknown' for update;
    v_unknown := found;
  end if;
  update pawl.job as j
     set status = case
           when v_unknown then 'unknown'
           when coalesce((p_options ->> 'cancel')::boolean, false) then 'cancelled'
           when v_waits then 'pending'
           when coalesce((p_options ->> 'final')::boolean, false) or not v_waits or j.attempts >= j.max_attempts then 'dead_letter'
           else 'pending'
         end,
         lane_head = j.lane_head and (v_unknown or not coalesce((p_options ->> 'cancel')::boolean, false)),
         claimed_by = null,
         lease_expires_at = null,
         attempts = case when v_waits is null then j.attempts else greatest(j.attempts - 1, 0) end,
         available_at = least(clock_timestamp()
           + pawl_v1._int_option(p_options, 'retry_in_ms', 1000, 0, 31536000000) * interval '1 millisecond',
           case when v_waits then coalesce(v_since, clock_timestamp()) + v_limit end),
         last_errors = case
           when v_waits and v_since is not null then j.last_errors
           else pawl_v1._push_error(j.last_errors, v_error, j.attempts, j.fence, j.claimed_by)
         end
   where j.id = p_id
     and j.status = 'processing'
     and j.fence = p_fence
  returning j.*
       into v_job;
  if not found then
    perform pawl_v1._raise_fence_lost(p_id, p_fence);
  end if;
  return query
  select case v_job.status when 'pending' then 'retry' else v_job.status end,
         v_job.available_at, v_job.attempts::int,
         case when v_job.lane_id is null or v_job.status in ('pending', 'unknown') then '{}' else pawl_v1._lanes_leave(array[p_id]) end;
end
$$;

-- job_release gives a claimed job back without charging the attempt. Use it on shutdown, after a
-- database outage, for a later try, or when the reply to COMMIT was lost. In the last case the
-- outcome says whether the transaction committed.
--
-- Outcomes:
--   released  The job was yours and is pending again.
--   not_held  Nothing changed: it finished, was taken over, or has ended.
--
-- Errors:
--   55P03  The old transaction still has the row after 2 s. Ask again.
--   P4004  An argument.
--
-- Options:
--   retry_in_ms  (0 to a year, default 0) The earliest next attempt, from now. A job that was
--                claimed early keeps its due time.
create or replace function pawl_v1.job_release(p_id bigint, p_fence bigint, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
begin
  perform pawl_v1._check_options(p_options, '{retry_in_ms}');
  update pawl.job as j
     set status = 'pending',
         claimed_by = null,
         lease_expires_at = null,
         attempts = greatest(j.attempts - 1, 0),
         available_at = greatest(j.available_at, clock_timestamp()
           + pawl_v1._int_option(p_options, 'retry_in_ms', 0, 0, 31536000000) * interval '1 millisecond')
   where j.id = p_id
     and j.status = 'processing'
     and j.fence = p_fence;
  if found then
    return query
    select 'released', '{}'::jsonb;
    return;
  end if;
  return query
  select 'not_held', case current_setting('synchronous_standby_names') when '' then '{}' else pawl_v1._unreplicated() end;
end
$$;
