-- Transactions that have been open for more than $1 milliseconds.
select a.pid, coalesce(a.usename, '?') as username, a.application_name, a.xact_start as since, coalesce(a.state, 'active') as state
  from pg_catalog.pg_stat_activity as a
 where a.datname = current_database()
   and a.pid <> pg_backend_pid()
   and (a.backend_xmin is not null or a.backend_xid is not null or a.state like 'idle in transaction%')
   and a.xact_start < clock_timestamp() - $1 * interval '1 millisecond'
