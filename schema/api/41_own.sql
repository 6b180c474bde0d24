-- Changes that an application may make to its own jobs: cancel, or run at another time. Call them
-- in the transaction that makes the job unnecessary, such as the payment before its reminder. They
-- take no actor and no reason and write no audit record. Operators use job_cancel and job_retry.

-- job_cancel_own cancels a job that has not ended. A waiting job will not run. A running attempt
-- loses its job, and its worker gets a recall with the next heartbeat. External effects stay.
--
-- Outcomes: 'cancelled' (detail.status: the former one; 'processing': an attempt was running, or it
-- was in the batch of its head, see lane_batch; in a lane, also as of job_finish). 'refused'
-- (detail.status, detail.hint): it has ended or waits for a verdict. 'absent': it finished, was
-- discarded, or never existed. Its key stays. Errors: 55P03, an open transaction, probably its
-- handler's, has held the row for 2 s; nothing changed.
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

-- job_reschedule moves the start of a job that has not started, earlier or later. Its attempts, key
-- and lane position stay; a lane waits for its head. p_start_in_ms: from now, 0 to 315360000000 (10
-- years).
--
-- Outcomes: 'rescheduled' (detail: former status, queue, available_at). 'refused' (detail.status,
-- detail.hint): it is running or has ended. 'absent': as of job_cancel_own. Errors: P4004,
-- p_start_in_ms. 55P03, as of job_cancel_own.
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
