-- Tables of Pawl's whose rows row level security may hide from roles that have rights to them.
with granted as (
  select c.oid, c.relname, a.grantee, a.privilege_type
    from pg_catalog.pg_class as c
   cross join lateral pg_catalog.aclexplode(coalesce(c.relacl, pg_catalog.acldefault('r', c.relowner))) as a
    left join pg_catalog.pg_roles as r on r.oid = a.grantee
   where c.relnamespace = 'pawl'::regnamespace
     and c.relkind in ('r', 'p')
     and c.relrowsecurity
     and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
     and (a.grantee <> c.relowner or c.relforcerowsecurity)
     and not coalesce(r.rolsuper or r.rolbypassrls, false)
)
select g.relname as table_name,
       string_agg(distinct case when g.grantee = 0 then 'PUBLIC' else quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) end, ', ') as roles
  from granted as g
 where not exists (select from pg_catalog.pg_policy as p
                    where p.polrelid = g.oid
                      and p.polpermissive
                      and p.polcmd in ('*', case g.privilege_type when 'SELECT' then 'r' when 'INSERT' then 'a' when 'UPDATE' then 'w' else 'd' end::"char")
                      and coalesce(pg_catalog.pg_get_expr(p.polqual, g.oid), 'true') = 'true'
                      and coalesce(pg_catalog.pg_get_expr(p.polwithcheck, g.oid), 'true') = 'true'
                      and exists (select from unnest(p.polroles) as r (oid)
                                   where r.oid = 0 or g.grantee <> 0 and pg_catalog.pg_has_role(g.grantee, r.oid, 'USAGE')))
    or exists (select from pg_catalog.pg_policy as p where p.polrelid = g.oid and not p.polpermissive)
 group by g.relname
 order by g.relname
