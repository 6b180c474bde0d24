-- Attempts that came back too late and were refused. A refusal rolls its transaction back, so the
-- refused process records it afterwards.

-- stale_write_add records attempts that came too late and were refused, so that function explain
-- shows them. Call it after the refusal, outside the refused transaction, which is rolled back.
-- Workers and commands in Go call it by themselves.
--
-- p_kind is 'job', with queues as scopes and ids as keys, or 'command'. p_fences are the fences of
-- the refused attempts, and p_workers the names of their processes. Elements of the arrays belong
-- together by position, up to 1,000 each. There are no options.
--
-- A known refusal is not recorded again. Refusals are kept for 7 days, and each call deletes up to
-- 500 older ones. They are for people: no decision of Pawl depends on them.
--
-- Outcomes:
--   recorded  All are recorded. detail.recorded is the number of new ones.
--   full      Some were not recorded: an hour has 1,000 at most.
--
-- Errors:
--   55P03  A row was locked for 2 s.
--   P4004  An argument.
create or replace function pawl_v1.stale_write_add(p_kind text, p_scopes text[], p_keys text[], p_fences bigint[], p_workers text[], p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_room  int;
  v_added int;
begin
  perform pawl_v1._check_options(p_options, '{}');
  if p_kind is null or p_kind not in ('job', 'command') then
    raise exception 'the kind must be job or command, it is %', coalesce(quote_literal(left(p_kind, 100)), 'null')
      using errcode = 'P4004';
  end if;
  if cardinality(p_keys) is distinct from cardinality(p_scopes) or cardinality(p_fences) is distinct from cardinality(p_scopes)
     or cardinality(p_workers) is distinct from cardinality(p_scopes) or coalesce(cardinality(p_scopes), 1001) > 1000 then
    raise exception 'scopes, keys, fences and workers must be arrays of one length up to 1000, they have %, %, % and %',
                    cardinality(p_scopes), cardinality(p_keys), cardinality(p_fences), cardinality(p_workers)
      using errcode = 'P4004';
  end if;
  if exists (
       select
         from unnest(p_scopes, p_keys, p_fences, p_workers) as g (scope, key, fence, worker)
        where coalesce(octet_length(g.scope) not between 1 and 255 or octet_length(g.key) not between 1 and 255
                       or octet_length(g.worker) not between 1 and 255 or g.fence < 0, true)) then
    raise exception 'a scope, a key and the name of a worker must have 1 to 255 octets, a fence must not be negative'
      using errcode = 'P4004';
  end if;
  select 1000 - count(*)
    into v_room
    from (
      select
        from pawl.stale_write as w
       where w.at > clock_timestamp() - interval '1 hour'
       limit 1000
    ) as w;
  insert into pawl.stale_write (kind, scope, key, fence, worker)
  select p_kind, g.scope, g.key, g.fence, min(g.worker)
    from unnest(p_scopes, p_keys, p_fences, p_workers) as g (scope, key, fence, worker)
   group by g.scope, g.key, g.fence
   -- Same order in every call, so that two cannot deadlock.
   order by g.key collate "C", g.scope collate "C", g.fence
   limit v_room
  on conflict (kind, key, scope, fence) do nothing;
  get diagnostics v_added = row_count;
  delete from pawl.stale_write as w
   where w.ctid = any (array(
           select o.ctid
             from pawl.stale_write as o
            where o.at < clock_timestamp() - interval '7 days'
            order by o.at
            limit 500
              for update skip locked));
  return query
  select case when v_room < cardinality(p_scopes) then 'full' else 'recorded' end, jsonb_build_object('recorded', v_added);
end
$$;
