-- These functions guard work inside your own transaction that has no row of Pawl's.

-- try_lock locks a name until the transaction ends, without waiting. Use it to run a task once at a
-- time, such as closing a merchant's day or importing a file. It does not remember that the task
-- was done, so it does not replace a constraint or a key. Use your own rows for that.
--
-- Names are hashed to 64 bits. A collision can refuse a free name but never admits two holders.
-- ('a', 'bc') and ('ab', 'c') are two names. The same transaction may lock a name again.
--
-- Outcomes:
--   locked  The name is yours until the transaction ends.
--   busy    Another transaction holds it.
--
-- Errors:
--   P4000, P4001  The namespace or the key does not have 1 to 255 octets.
create or replace function pawl_v1.try_lock(p_namespace text, p_key text)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_scope('namespace', p_namespace);
  perform pawl_v1._check_key('key', p_key);
  return query
  select case
           when pg_try_advisory_xact_lock(hashtextextended(octet_length(p_namespace) || ':' || p_namespace || p_key, 1885435756))
           then 'locked' else 'busy'
         end, '{}'::jsonb;
end
$$;

-- fence_accept accepts a write to a resource unless a newer attempt wrote to it. Call it first in
-- the transaction that writes. The resource's row stays locked until that transaction ends. The
-- fence is remembered if it commits.
--
-- Fences are comparable only if they come from one source. So name the source in the resource: 'job
-- 17 report', not 'report'.
--
-- Outcomes:
--   accepted  No higher fence was accepted before. The same fence is accepted again.
--
-- Errors:
--   P4020         A higher fence was accepted: drop this attempt.
--   55P03         Another transaction has written to the resource for more than 2 s.
--   P4000, P4004  The resource does not have 1 to 255 octets, or the fence is below 1.
create or replace function pawl_v1.fence_accept(p_resource text, p_fence bigint)
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_seen bigint;
begin
  perform pawl_v1._check_scope('resource', p_resource);
  if p_fence is null or p_fence < 1 then
    raise exception 'a fence is 1 or more, this one is %', coalesce(p_fence::text, 'null')
      using errcode = 'P4004', hint = 'pass the fence that the claim returned';
  end if;
  insert into pawl.fence as f (resource, fence)
  values (p_resource, p_fence)
  on conflict do nothing;
  if not found then
    update pawl.fence as f
       set fence = p_fence,
           seen_at = clock_timestamp()
     where f.resource = p_resource
       and f.fence <= p_fence;
    if not found then
      select f.fence
        into v_seen
        from pawl.fence as f
       where f.resource = p_resource;
      raise exception 'resource % has seen fence %, this attempt has %', p_resource, v_seen, p_fence
        using errcode = 'P4020', detail = 'superseded', hint = 'a newer attempt owns this resource; drop this one';
    end if;
  end if;
  return query
  select 'accepted', '{}'::jsonb;
end
$$;

-- fence_purge deletes the fences of resources without a write for p_older_than_ms, at most p_limit
-- (1 to 100,000). An attempt that is older than that and still runs is then accepted, so choose
-- days. The command 'pawl purge --table fence' calls it.
--
-- Outcomes:
--   purged  The column purged is the number of rows.
--
-- Errors:
--   P4004  An argument.
create or replace function pawl_v1.fence_purge(p_older_than_ms bigint, p_limit int default 1000)
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_before timestamptz := pawl_v1._before(p_older_than_ms);
  v_purged int;
begin
  perform pawl_v1._check_int('limit', p_limit, 1, 100000);
  with due as (
    select f.resource
      from pawl.fence as f
     where f.seen_at < v_before
     limit coalesce(p_limit, 1000)
       for update skip locked
  )
  delete from pawl.fence as f
   using due as d
   where f.resource = d.resource
     and f.seen_at < v_before;
  get diagnostics v_purged = row_count;
  return query
  select 'purged', v_purged, '{}'::jsonb;
end
$$;
