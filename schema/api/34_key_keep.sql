-- Enqueue keys over time.

-- job_key_purge deletes expired enqueue keys, at most p_limit (1 to 10,000). Every worker calls it
-- about once a minute. If a key's job has a row in any status, the key stays. Otherwise a second
-- job could run beside the first, which may be a dead letter that an operator retries. Such a key
-- is remembered for as long again as it has been, and not looked at until then. Locked rows wait
-- for the next call.
--
-- A backlog is purged in rounds. Pass detail.next of a call as option 'since' of the next. That
-- call then skips the dead entries of the calls before it, until vacuum has removed them. Begin a
-- round without it.
--
-- Outcomes:
--   purged  The column purged is the number of rows. detail.kept is the number of keys that stay
--           because of their jobs. detail.next is where the next call begins; it is absent if no
--           key was found.
--
-- Errors:
--   P4004  An argument.
--
-- Options:
--   older_than_ms  (0 to 10 years, default 24 h) Skip keys taken since. The call reads no further,
--                  so raise it to the shortest retention_ms in use.
--   since          (timestamp, default the beginning) Where the walk begins.
create or replace function pawl_v1.job_key_purge(p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- walk the age index in order: docs/decisions/0036-purging.md
set enable_sort = off
set enable_seqscan = off
as $$
declare
  v_before timestamptz;
  v_due    tid[];
  v_next   timestamptz;
  v_purged int;
  v_kept   int;
begin
  perform pawl_v1._check_options(p_options, '{older_than_ms,since}');
  perform pawl_v1._check_int('limit', p_limit, 1, 10000);
  v_before := pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms', 86400000, 0, 315360000000));
  -- ctids of locked rows do not change. A join by key could read the whole table.
  select array_agg(d.ctid), max(d.created_at)
    into v_due, v_next
    from (
      select k.ctid, k.created_at
        from pawl.job_key as k
       where k.created_at < v_before
         and k.created_at >= pawl_v1._since(p_options)
         and k.expires_at < clock_timestamp()
       order by k.created_at
       limit coalesce(p_limit, 1000)
         for update skip locked
    ) as d;
  delete from pawl.job_key as k
   where k.ctid = any (v_due)
     and k.expires_at < clock_timestamp()
     and not exists (select from pawl.job as j where j.id = k.job_id);
  get diagnostics v_purged = row_count;
  update pawl.job_key as k
     set expires_at = clock_timestamp() + (k.expires_at - k.created_at)
   where k.ctid = any (v_due)
     and k.expires_at < clock_timestamp();
  get diagnostics v_kept = row_count;
  return query
  select 'purged', v_purged, jsonb_strip_nulls(jsonb_build_object('kept', nullif(v_kept, 0), 'next', v_next));
end
$$;
