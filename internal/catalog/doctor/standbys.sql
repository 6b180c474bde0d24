-- The cost of a failover now: commits that no standby has, or all commits that follow.
with server as (
  select pg_is_in_recovery() as standby, s.setting as names,
         coalesce(substring(s.setting from '(?i)^\s*(?:first|any)?\s*(\d+)\s*\('), '1')::int as needed
    from pg_catalog.pg_settings as s
   where s.name = 'synchronous_standby_names'
), replica as (
  select pg_wal_lsn_diff(case when s.standby then null else pg_current_wal_lsn() end, r.flush_lsn) as octets, r.flush_lag, r.reply_time
    from server as s
   cross join pg_catalog.pg_stat_replication as r
   where r.state = 'streaming'
     and r.application_name <> 'pg_basebackup'
     and r.application_name <> 'pg_receivewal'
), counted as (
  select count(*) as standbys, coalesce(max(r.octets), 0)::bigint as octets,
         coalesce(max(extract(epoch from greatest(r.flush_lag, case when r.octets > 0 then clock_timestamp() - r.reply_time end))), 0)::float8 as seconds
    from replica as r
)
select case when s.standby then 'standby' when s.names = '' then 'asynchronous' else 'few' end as scope, c.standbys, s.needed, c.octets, c.seconds
  from server as s
 cross join counted as c
 where s.standby
    or c.standbys > 0 and (s.names = '' or c.standbys <= s.needed)
