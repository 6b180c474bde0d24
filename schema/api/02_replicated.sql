-- An answer that was only read must wait for replication like the commit that it rests on.
--
-- A COMMIT that waits for a synchronous standby stops waiting when it is cancelled, when its backend is terminated, and when the
-- server restarts. Its rows are then visible here, and may never reach the standby. A transaction that reads such a row and writes
-- nothing waits for nobody: its answer would survive a failover that its row does not.

-- _unproved writes a WAL record in the transaction that gives the answer, so that its COMMIT waits
-- until everything before it is replicated. A transaction id alone does not: without WAL, COMMIT
-- waits for nothing. Callers test synchronous_standby_names themselves, so that without synchronous
-- standbys nothing is called.
--
-- The answer names the server, by the time at which it started: only a COMMIT on the same server
-- proves what was read on it. After a failover a connection to the promoted server proves nothing
-- about what the old primary showed.
create or replace function pawl_v1._unproved()
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    raise exception 'a standby cannot prove that this answer is replicated'
      using errcode = '25006', hint = 'ask the primary';
  end if;
  perform pg_logical_emit_message(true, 'pawl', '');
  return jsonb_build_object('unproved', extract(epoch from pg_postmaster_start_time())::text);
end
$$;
