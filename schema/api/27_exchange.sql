-- An exchange: jobs that are done end, and others are claimed in their place, in one call and with one commit.

-- Ends many jobs well, as job_finish_many with skip_stale, and claims due jobs of a queue, as job_claim for a worker: up to p_limit, and one
-- more for each job that ended, at most 500. A job in a lane whose predecessor has just ended may be among them. For handlers that work without
-- a transaction: start none before the answer has come.
--
-- If the worker's lease is over, or ends within 100 ms, nothing is claimed. That is a row and not an error, for the ends are good.
--
-- options: those of job_claim but lease_ms.
-- outcome 'ended', always and once: detail has finished, how many, and is else that of job_finish_many. Then one row each for
-- 'stale' and 'locked': a job that did not end, as of job_finish_many, with its id; 'lease_lost': register again; 'claimed', with the columns
-- and the detail of job_claim.
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
  -- The worker before its jobs, as everybody locks them.
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
