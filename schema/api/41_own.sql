-- Changes that an application may make to its own jobs: cancel, or run at another time. Call them
-- in the transaction that makes the job unnecessary, such as the payment before its reminder. They
-- take no actor and no reason and write no audit record. Operators use job_cancel and job_retry.

-- job_cancel_own is job_cancel for the application that enqueued the job. Call it in the
-- transaction that makes the job needless: the order is paid, so its reminder goes. It takes no
-- actor and writes no audit record.
--
-- The job's key stays remembered. If the job was running, its worker is notified after you commit.
-- A job that waits in its lane counts as processing while it is in the batch of its head
-- (lane_batch), because its work may be done already. The same holds for job_reschedule, job_cancel
-- and job_discard. A batch that begins before you commit takes the job along.
--
-- Outcomes:
--   cancelled  It will not run, or its running attempt is recalled. detail.status is its status
--              before. In a lane, detail is also that of job_finish.
--   refused    It has ended, or waits for a verdict: detail.status, detail.hint.
--   absent     It finished, was discarded, or never existed.
--
-- Errors:
--   55P03  An open transaction has had the row for more than 2 s, most likely that of its handler.
--          Nothing changed.
create or replace function pawl_v1.job_cancel_own(p_id bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job := pawl_v1._job_locked(p_id);
begin
  return query
  select r.outcome, r.detail || case when current_setting('synchronous_standby_names') <> '' then pawl_v1._unreplicated() else '{}' end
    from pawl_v1._refusal(v_before, '{pending,waiting,processing}', '{}') as r;
  if found then
    return;
  end if;
  perform pawl_v1._job_stop(v_before);
  return query
  select 'cancelled', jsonb_build_object('status', v_before.status)
    || case when v_before.lane_head then pawl_v1._lane_freed(v_before.lane_id, v_before.queue) else '{}' end;
end
$$;

-- job_reschedule moves a job that has not started to another time, earlier or later: p_start_in_ms
-- from now, at most 10 years. Its attempts, its key and its place in its lane stay. While the job
-- that has the turn waits, its lane waits. It is for the application that enqueued the job. The
-- example is under job_cancel_own.
--
-- Outcomes:
--   rescheduled  detail has 'status' (the one before), 'queue' and available_at.
--   refused      It is running, or has ended: detail.status, detail.hint.
--   absent       It finished, was discarded, or never existed.
--
-- Errors:
--   P4004  p_start_in_ms.
--   55P03  As of job_cancel_own.
create or replace function pawl_v1.job_reschedule(p_id bigint, p_start_in_ms bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_before pawl.job;
  v_after  pawl.job;
begin
  perform pawl_v1._check_int('start_in_ms', p_start_in_ms, 0, 315360000000);
  v_before := pawl_v1._job_locked(p_id);
  return query
  select r.outcome, r.detail || case when current_setting('synchronous_standby_names') <> '' then pawl_v1._unreplicated() else '{}' end
    from pawl_v1._refusal(v_before, '{pending,waiting}', '{}') as r;
  if found then
    return;
  end if;
  update pawl.job as j
     set available_at = clock_timestamp() + p_start_in_ms * interval '1 millisecond',
         fence = j.fence + 1
   where j.id = p_id -- locked since its status was read
  returning j.*
       into v_after;
  if v_after.status = 'pending' and v_after.available_at <= clock_timestamp() then
    perform pawl_v1._wake(array[v_after.queue]);
  end if;
  return query
  select 'rescheduled', jsonb_build_object('status', v_before.status, 'queue', v_before.queue, 'available_at', v_after.available_at);
end
$$;
