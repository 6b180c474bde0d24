-- A job that ends in the transaction that does its work. The end comes first:
--
--   begin → job_open: the row is deleted → your rows → job_close: same transaction? → commit
--                                            └── error: rollback restores the row; then job_fail
--
-- An effect cannot commit without the end of its job, even if the code in between ends the
-- transaction. Call job_fail in a separate transaction.

-- job_open checks the fence and ends a claimed job. Call it as the first statement of the
-- transaction that does the work, and job_close as the last. Other transactions see the job
-- processing and locked until you commit. A rollback brings it back, held by this attempt. Then
-- call job_fail in its own transaction.
--
-- Pass the returned outcome, xact and lane to job_close. Read the outcome each time, because an
-- operator may give the queue an archive at any time. If the transaction is idle for p_idle_ms
-- milliseconds, the server ends it. Null keeps the limit of the session.
--
-- Outcomes:
--   ended  The row is deleted.
--   kept   The row is locked and stays until job_close: p_keep is true, or the queue has an archive
--          (queue_set). Set a savepoint after the call. If your code ends the transaction, rolling
--          back to it fails, and you must not retry the job.
--
-- Errors:
--   P4020, 55P03  As of job_hold.
create or replace function pawl_v1.job_open(p_id bigint, p_fence bigint, p_idle_ms int default null, p_keep boolean default false)
returns table (outcome text, xact text, lane bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_idle_ms is not null then
    perform set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true);
  end if;
  outcome := 'ended';
  detail := '{}';
  for v_try in 1..2 loop
    if not p_keep then
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
           into lane;
      if found then
        xact := pg_current_xact_id();
        return next;
        return;
      end if;
    end if;
    exit when v_try = 2;
    perform pawl_v1.job_hold(p_id, p_fence); -- this transaction has locked the row now
    exit when p_keep;
  end loop;
  outcome := 'kept';
  xact := pg_current_xact_id()::text || ' kept';
  return next;
end
$$;

-- job_close completes job_open. Call it as the last statement before COMMIT. It checks that the
-- transaction is still the one of job_open, and gives the next job of the lane its turn. p_outcome,
-- p_xact and p_lane are the values that job_open returned.
--
-- Outcomes:
--   finished  detail as of job_finish.
--
-- Errors:
--   25000  Your code has ended the transaction, and this is another one. Its earlier writes may be
--          durable. Roll back; job_release says whether the job ended with it. Or your code has
--          rolled back to a savepoint from before job_open: then the job has not ended.
--   P4020  Only after 'kept': your code has ended the job by itself.
--   P4004  p_outcome is not what job_open returned. After 'kept', with 'ended', your rows would
--          commit and the job would run again.
create or replace function pawl_v1.job_close(p_id bigint, p_fence bigint, p_outcome text, p_xact text, p_lane bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_xact text := pg_current_xact_id_if_assigned();
begin
  if (p_xact in (v_xact, v_xact || ' kept')) is not true then
    raise exception 'the transaction in which job % was opened has ended', p_id
      using errcode = '25000', hint = 'code that is lent the transaction of a job must not commit or roll back';
  end if;
  if (p_outcome = case p_xact when v_xact then 'ended' else 'kept' end) is not true then
    raise exception 'job_open did not answer % for job %', coalesce(p_outcome, 'null'), p_id
      using errcode = 'P4004', hint = 'pass outcome, xact and lane as job_open answered them';
  end if;
  if p_outcome = 'kept' then
    return query
    select f.outcome, f.detail from pawl_v1.job_finish(p_id, p_fence) as f;
    return;
  end if;
  perform
     from pawl.job as j
    where j.id = p_id;
  if found then
    raise exception 'the end of job % was rolled back to a savepoint', p_id
      using errcode = '25000', hint = 'call job_open before any savepoint that you roll back to';
  end if;
  return query
  select 'finished', case when p_lane is null then '{}' else pawl_v1._lanes_free(array[p_lane]) end;
end
$$;
