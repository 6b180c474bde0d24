-- A job that ends in the transaction that does its work, its end first:
--
--   begin → job_open: the row is deleted → your rows → job_close: still that transaction? → commit
--                                             └── any error: rollback brings the row back; job_fail, in a transaction of its own
--
-- An effect cannot commit without the end of its job, whatever the code in between does to the transaction.

-- Proves the fence and ends the job, as the first statement of the transaction that will do the work. Others see the job
-- processing until the commit, and its row is locked; a rollback brings it back, held by this attempt. Call job_close last.
--
-- p_idle_ms: the server ends the transaction after so long a silence (idle_in_transaction_session_timeout); null leaves the
-- session's own limit. p_keep: the row stays, locked, until job_close, for work that reads it; so does that of a queue with an archive.
-- outcome 'ended', or 'kept'. Pass it, xact and lane to job_close as they are; xact says whether the row was kept.
-- P4020: see _raise_fence_lost. 55P03: another transaction has held the row for 2 s; nothing is known yet.
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
    perform pawl_v1.job_hold(p_id, p_fence); -- the row is locked now, by this transaction
    exit when p_keep;
  end loop;
  outcome := 'kept';
  xact := pg_current_xact_id()::text || ' kept';
  return next;
end
$$;

-- The counterpart of job_open, as the last statement before COMMIT. It proves that this is still the transaction that job_open
-- began, and gives the turn in the job's lane to the next. p_outcome, p_xact, p_lane: what job_open answered.
--
-- outcome 'finished', detail as of job_finish.
-- 25000: the work has ended the transaction, by COMMIT or ROLLBACK, and this is another one. What it wrote before may be durable;
-- job_release says whether the job ended with it. Or the work rolled back to a savepoint from before job_open.
-- P4020: the work has ended the job by itself (outcome 'kept' only). P4004: p_outcome is
-- not what job_open answered, so the effect might commit without the end of the job.
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
