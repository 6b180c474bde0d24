-- Settings and workers for which answers do not wait for the synchronous standbys.
with asked as (
  select from pg_catalog.pg_settings as s where s.name = 'synchronous_standby_names' and s.setting <> ''
)
select 'session' as scope, 'database ' || quote_ident(current_database()) as target, null::bigint as worker_id
  from asked
  join pg_catalog.pg_settings as s on s.name = 'synchronous_commit' and s.setting = 'local'
 union all
select 'role setting', coalesce('role ' || quote_ident(r.rolname), 'database ' || quote_ident(d.datname)), null
  from asked
 cross join pg_catalog.pg_db_role_setting as s
  left join pg_catalog.pg_roles as r on r.oid = s.setrole
  left join pg_catalog.pg_database as d on d.oid = s.setdatabase
 where (s.setdatabase = 0 or d.datname = current_database())
   and 'synchronous_commit=local' = any (s.setconfig)
 union all
select 'standby', null, null
  from asked
 where not pg_is_in_recovery()
   and not exists (select from pg_catalog.pg_stat_replication as r where coalesce(r.sync_state, 'hidden') in ('sync', 'quorum', 'hidden'))
 union all
select 'worker', w.name, w.id
  from asked
 cross join pawl.worker as w
 where w.report is not null
   and (w.report ->> 'watched')::boolean is not true
   and not w.seen_at + w.lease < clock_timestamp()
