-- Enqueue keys over time.

-- Forgets enqueue keys whose memory is over, at most p_limit of them (1 to 10000). A key whose job has a row is never forgotten: a
-- second job would run beside the first, which may be a dead letter that somebody retries. Such a key is remembered for as long again
-- as it has been, and not looked at until then.
--
-- options: older_than_ms (default 24 h): looks at no key taken since. The walk through the index of ages ends there; raise it to the
-- shortest retention_ms in use. since: detail.next of the call before, to go on from there; the first call of a round has none.
-- outcome 'purged'. detail.kept: keys whose jobs have not ended, with a new end of their memory; absent if none. detail.next: the
-- moment up to which it has looked; absent if it found nothing.
create or replace function pawl_v1.job_key_purge(p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- it walks the index of ages in order: see docs/decisions/0036-purging.md
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
  -- Their places in the table, which cannot change while they are locked: a join by key could read all of it for each batch.
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
