-- A job that ends in the transaction that does its work. The end comes first:
--
--   begin → job_open: the row is deleted → your rows → job_close: same transaction? → commit
--                                            └── error: rollback restores the row; then job_fail
--
-- An effect cannot commit without the end of its job, even if the code in between ends the
-- transaction. Call job_fail in a separate transaction.

-- job_open checks the fence and ends the job. Call it as the first statement of the transaction
-- that does the work, and job_close as the last. Other transactions see the job processing and
-- locked until the commit. A rollback restores it, held by this attempt.
--
-- p_idle_ms: idle_in_transaction_session_timeout for this transaction, in ms; null keeps the
-- session's. p_keep: the row stays until job_close, as always in a queue with an archive.
-- Outcomes: 'ended', 'kept'. Pass outcome, xact and lane to job_close unchanged. xact encodes
-- whether the row was kept. Errors: P4020, see _raise_fence_lost. 55P03, another transaction has
-- held the row for 2 s; the state is not known yet.
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
-- transaction is still the one of job_open, and promotes the next job of the lane. p_outcome,
-- p_xact, p_lane: the values that job_open returned.
--
-- Outcome: 'finished'; detail as of job_finish.
-- Errors: 25000, the work has committed or rolled back the transaction, or rolled back to a
-- savepoint before job_open. Writes before that may be durable; job_release tells whether the job
-- ended with them. P4020, the work ended the job itself (only 'kept'). P4004, p_outcome does not
-- match p_xact, so the effect could commit without the end of the job.
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
