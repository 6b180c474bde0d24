-- Settings with which a commit is answered before it is on disk: of this session, of a role or
-- database, or of the server.
select 'session' as scope, s.name as setting, 'database ' || quote_ident(current_database()) as target
  from pg_catalog.pg_settings as s
 where s.name = 'synchronous_commit'
   and s.setting = 'off'
 union all
select 'role setting', 'synchronous_commit', coalesce('role ' || quote_ident(r.rolname), 'database ' || quote_ident(d.datname))
  from pg_catalog.pg_db_role_setting as s
  left join pg_catalog.pg_roles as r on r.oid = s.setrole
  left join pg_catalog.pg_database as d on d.oid = s.setdatabase
 where (s.setdatabase = 0 or d.datname = current_database())
   and 'synchronous_commit=off' = any (s.setconfig)
   and not (s.setrole = 0 and (select o.setting from pg_catalog.pg_settings as o where o.name = 'synchronous_commit') = 'off')
 union all
select 'server', s.name, null
  from pg_catalog.pg_settings as s
 where s.name in ('fsync', 'full_page_writes')
   and s.setting = 'off'
