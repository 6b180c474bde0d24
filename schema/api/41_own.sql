-- What an application may do with a job that it enqueued: cancel it, or let it run at another time. Both belong into the transaction
-- that makes the job needless, as that of the order which is paid before its reminder. No operator decides, so there is no actor, no
-- reason and no record in pawl.audit; job_cancel and job_retry are for people.

-- Ends a job that has not ended. A job that waits will not run. One that runs is refused its end: its attempt is told when its worker
-- next reports, and what it has done outside of the database stays done.
--
-- outcome 'cancelled' (detail.status: what it was; 'processing': an attempt was running, or it is in the batch of its head, see lane_batch),
-- 'refused' (detail.status, detail.hint: it has ended, or waits for a verdict), 'absent': it has finished, was discarded, or was never
-- there. Its key stays remembered.
-- In a lane the next gets its turn: detail as of job_finish.
-- 55P03: an open transaction has held the row for more than 2 s, most likely that of its handler; nothing changed.
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
  select r.outcome, r.detail || case when current_setting('synchronous_standby_names') <> '' then pawl_v1._unproved() else '{}' end
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

-- Lets a job that waits run at another time, earlier or later. Its attempts, its key and its place in its lane stay; a lane waits for the
-- job whose turn it is.
--
-- p_start_in_ms: how long from now, 0 to 315360000000 (10 years), by the clock of the database.
-- outcome 'rescheduled' (detail.status, detail.queue, detail.available_at), 'refused' (detail.status, detail.hint: it is running, or has
-- ended), 'absent': as of job_cancel_own. P4004: p_start_in_ms. 55P03: as of job_cancel_own.
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
  select r.outcome, r.detail || case when current_setting('synchronous_standby_names') <> '' then pawl_v1._unproved() else '{}' end
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
