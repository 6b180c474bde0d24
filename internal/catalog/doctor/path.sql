-- Schemas of a search_path in which other roles may create objects.
with path as (
  select current_setting('pawl.search_path') as value
   union all
  select substr(c.setting, length('search_path=') + 1)
    from pg_catalog.pg_db_role_setting as s
    left join pg_catalog.pg_roles as r on r.oid = s.setrole
   cross join unnest(s.setconfig) as c (setting)
   where c.setting like 'search_path=%'
     and (s.setdatabase = 0 or s.setdatabase = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database()))
     and (r.oid is null or r.rolcanlogin)
)
select quote_ident(n.nspname) as schema_name, case when a.grantee <> 0 then quote_ident(r.rolname) end as role_name
  from pg_catalog.pg_namespace as n
 cross join lateral aclexplode(n.nspacl) as a
  left join pg_catalog.pg_roles as r on r.oid = a.grantee
 where a.privilege_type = 'CREATE'
   and a.grantee <> n.nspowner
   and not coalesce(r.rolsuper, false)
   and exists (select from path as p
                cross join regexp_split_to_table(p.value, ',') as e (name)
                where btrim(e.name, ' "') = n.nspname)
 order by 1, 2
