-- An answer that was only read must wait for replication like the commit that it rests on.
--
-- A COMMIT that waits for a synchronous standby stops waiting when it is cancelled, when its
-- backend is terminated, and when the server restarts. Its rows are then visible here and may never
-- reach the standby. A transaction that reads such a row and writes nothing does not wait for
-- replication. Its answer would survive a failover that its row does not.

-- _unreplicated writes a WAL record in the transaction that returns the answer. Its COMMIT then
-- waits until everything before it is replicated. A transaction id alone is not enough: without
-- WAL, COMMIT does not wait. Callers test synchronous_standby_names first.
--
-- detail.unreplicated identifies the server by its start time. Only a COMMIT on the same server
-- confirms what was read on it. After a failover, the promoted server confirms nothing about the
-- old primary.
create or replace function pawl_v1._unreplicated()
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    raise exception 'a standby cannot confirm that this answer is replicated'
      using errcode = '25006', hint = 'ask the primary';
  end if;
  perform pg_logical_emit_message(true, 'pawl', '');
  return jsonb_build_object('unreplicated', extract(epoch from pg_postmaster_start_time())::text);
end
$$;
