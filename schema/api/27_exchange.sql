-- An exchange finishes jobs and claims others in one call and one commit.

-- job_exchange finishes up to 500 jobs, as job_finish_many with skip_stale. It then claims due jobs
-- of a queue, as job_claim, with the same commit. It claims up to p_limit (0 to 500) jobs and one
-- more for each that it finished, 500 at most. A job whose predecessor in its lane has just
-- finished may be among them. It is for handlers that work without a transaction: start no handler
-- before the answer has arrived.
--
-- If the reply is lost, ask for the finishes again with job_finish_many: those that ended are
-- 'stale'. The worker holds the jobs of the lost claim without knowing their ids. worker_leave
-- gives them back.
--
-- Outcomes:
--   ended          The first row, once. detail.finished is the number that ended; else detail as of
--                  job_finish_many.
--   stale, locked  The job 'id' was not finished, as of job_finish_many.
--   lease_lost     The worker's lease has ended, or ends within 100 ms. No job was claimed, and the
--                  finishes are valid. Register again.
--   claimed        A job, with the columns and the detail of job_claim.
--
-- Errors:
--   P4004  An argument. No job was finished or claimed.
--
-- Options:
--   kinds, crashed, since
--             As of job_claim.
create or replace function pawl_v1.job_exchange(
  p_ids     bigint[],
  p_fences  bigint[],
  p_queue   text,
  p_worker  bigint,
  p_limit   int,
  p_options jsonb default '{}'
)
returns table (
  outcome text, id bigint, fence bigint, kind text, payload bytea, headers jsonb, attempts int, max_attempts int, crashes int,
  priority int, created_at timestamptz, available_at timestamptz, detail jsonb
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_until    timestamptz; -- of the lease
  v_finished int := 0;
  v_freed    jsonb := '{}';
  v_failed   bigint[];
  v_why      text[];
begin
  perform pawl_v1._check_options(p_options, '{kinds,crashed,since}');
  if p_limit is null or p_limit not between 0 and 500 then
    raise exception 'limit must lie between 0 and 500, it is %', coalesce(p_limit::text, 'null')
      using errcode = 'P4004';
  end if;
  -- Lock order: the worker before its jobs.
  select w.seen_at + w.lease
    into v_until
    from pawl.worker as w
   where w.id = p_worker
     for key share;
  if cardinality(p_ids) > 0 then
    select count(*) filter (where f.outcome = 'finished'),
           (array_agg(f.detail) filter (where f.detail <> '{}'))[1],
           array_agg(f.id) filter (where f.outcome <> 'finished'),
           array_agg(f.outcome) filter (where f.outcome <> 'finished')
      into v_finished, v_freed, v_failed, v_why
      from pawl_v1.job_finish_many(p_ids, p_fences, '{"skip_stale": true}') as f;
  end if;
  outcome := 'ended';
  detail := coalesce(v_freed, '{}') || jsonb_build_object('finished', v_finished);
  return next;
  detail := '{}';
  for v_n in 1..coalesce(cardinality(v_failed), 0) loop
    outcome := v_why[v_n];
    id := v_failed[v_n];
    return next;
  end loop;
  if (v_until > clock_timestamp() + interval '100 ms') is not true then
    outcome := 'lease_lost';
    id := null;
    return next;
    return;
  end if;
  if p_limit + v_finished > 0 then
    return query
    select 'claimed', c.*
      from pawl_v1.job_claim(p_queue, p_worker, least(p_limit + v_finished, 500), p_options) as c;
  end if;
end
$$;
