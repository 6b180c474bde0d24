-- Enqueue keys over time.

-- Forgets enqueue keys whose memory is over, at most p_limit of them (1 to 10000). A key whose job has a row is never forgotten: a
-- second job would run beside the first, which may be a dead letter that somebody retries. Such a key is remembered for as long again
-- as it has been, and not looked at until then.
--
-- options: older_than_ms (default 24 h): looks at no key taken since. The index of ages then leads past the new ones; raise it to the
-- shortest key_ttl_ms in use.
-- outcome 'purged'. detail.kept: keys whose jobs have not ended, with a new end of their memory; absent if none.
create or replace function pawl_v1.job_key_purge(p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
as $$
declare
  v_before timestamptz;
  v_due    tid[];
  v_purged int;
  v_kept   int;
begin
  perform pawl_v1._check_options(p_options, '{older_than_ms}');
  perform pawl_v1._check_int('limit', p_limit, 1, 10000);
  v_before := pawl_v1._before(pawl_v1._int_option(p_options, 'older_than_ms', 86400000, 0, 315360000000));
  -- Their places in the table, which cannot change while they are locked: a join by key could read all of it for each batch.
  v_due := array(
    select k.ctid
      from pawl.job_key as k
     where k.created_at < v_before
       and k.expires_at < clock_timestamp()
     limit coalesce(p_limit, 1000)
       for update skip locked);
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
  select 'purged', v_purged, case when v_kept > 0 then jsonb_build_object('kept', v_kept) else '{}' end;
end
$$;
