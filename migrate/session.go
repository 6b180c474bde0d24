package migrate

import (
	"context"

	"github.com/pawl-go/pawl"
)

// hidden returns the tables of Pawl's in which row level security may hide rows from this role, or
// refuse them; "" if there are none. A table counts if row level security applies to the role, and
// the role has a right that no policy USING (true) covers. A table with a restrictive policy counts
// too. Conditions of other policies are not evaluated.
func hidden(ctx context.Context, db Querier) (names, role string, err error) {
	err = db.QueryRow(ctx, `select coalesce(pg_catalog.string_agg('pawl.' operator(pg_catalog.||) pg_catalog.quote_ident(c.relname::pg_catalog.text), ', ' order by c.relname), ''),
       pg_catalog.quote_ident(current_user::pg_catalog.text)
  from pg_catalog.pg_class as c
  join pg_catalog.pg_namespace as n on n.oid operator(pg_catalog.=) c.relnamespace
 where n.nspname operator(pg_catalog.=) 'pawl'
   and c.relkind operator(pg_catalog.=) any ('{r,p}'::pg_catalog."char"[])
   and pg_catalog.row_security_active(c.oid)
   and exists (
     select from (values ('r'::pg_catalog."char", 'SELECT'), ('a', 'INSERT'), ('w', 'UPDATE'), ('d', 'DELETE')) as may (command, privilege)
      where pg_catalog.has_table_privilege(c.oid, may.privilege)
        and not exists (
          select from pg_catalog.pg_policy as p
           where p.polrelid operator(pg_catalog.=) c.oid
             and p.polpermissive
             and p.polcmd operator(pg_catalog.=) any (array['*', may.command])
             and coalesce(pg_catalog.pg_get_expr(p.polqual, c.oid), 'true') operator(pg_catalog.=) 'true'
             and coalesce(pg_catalog.pg_get_expr(p.polwithcheck, c.oid), 'true') operator(pg_catalog.=) 'true'
             and exists (select from pg_catalog.unnest(p.polroles) as r (oid)
                          where r.oid operator(pg_catalog.=) 0::pg_catalog.oid or pg_catalog.pg_has_role(r.oid, 'USAGE')))
         or exists (
          select from pg_catalog.pg_policy as p
           where p.polrelid operator(pg_catalog.=) c.oid
             and not p.polpermissive))`).Scan(&names, &role)
	return names, role, err
}

// unhidden returns an error if row level security may hide rows of Pawl's tables from this role.
func unhidden(ctx context.Context, db Querier) error {
	names, role, err := hidden(ctx, db)
	if err != nil || names == "" {
		return err
	}
	return mismatch("as the owner of each of these tables: alter table ... disable row level security, and keep what turned it on, as an event trigger does, from schema pawl; "+
		"or give each a policy: create policy pawl on ... using (true)", "row level security hides the rows of %s from role %s", names, role)
}

// readable returns an error if the driver misreads bytea on this connection. Otherwise each job
// would be claimed and released again and again.
func readable(ctx context.Context, db Querier) error {
	var octets []byte
	err := pawl.Wrap("migrate.check", db.QueryRow(ctx, "select pg_catalog.decode('00ff5c', 'hex')").Scan(&octets))
	if err == nil && string(octets) != "\x00\xff\\" {
		return mismatch("set bytea_output = hex", "the driver misreads bytes (bytea_output)")
	}
	return err
}
