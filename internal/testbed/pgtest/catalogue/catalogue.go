// Package catalogue compares the database objects that different ways of installing Pawl's schema
// create.
package catalogue

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

const query = `
select format('column %s.%s %s %s %s default %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
              (select l.collname from pg_collation as l where l.oid = a.attcollation), pg_get_expr(d.adbin, d.adrelid))
  from pg_attribute as a
  join pg_class as c on c.oid = a.attrelid
  left join pg_attrdef as d on d.adrelid = c.oid and d.adnum = a.attnum
 where c.relnamespace in ('pawl'::regnamespace, 'pawl_v1'::regnamespace) and a.attnum > 0 and c.relkind in ('r', 'v')
union all
select format('relation %s %s %s', c.relname, c.relkind, c.reloptions)
  from pg_class as c
 where c.relnamespace in ('pawl'::regnamespace, 'pawl_v1'::regnamespace)
union all
select format('constraint %s %s', k.conname, pg_get_constraintdef(k.oid))
  from pg_constraint as k
 where k.connamespace = 'pawl'::regnamespace
union all
select format('index %s', pg_get_indexdef(i.indexrelid))
  from pg_index as i
  join pg_class as c on c.oid = i.indexrelid
 where c.relnamespace = 'pawl'::regnamespace
union all
select format('function %s %s %s', pg_get_functiondef(p.oid), p.proacl, pg_get_userbyid(p.proowner))
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
union all
select format('view %s %s', c.relname, pg_get_viewdef(c.oid))
  from pg_class as c
 where c.relnamespace = 'pawl_v1'::regnamespace and c.relkind = 'v'
union all
select format('migration %s %s %s %s', m.version, m.name, m.min_client, m.api_hash)
  from pawl.migration as m
order by 1`

// fewest is the least number of lines for a database with Pawl's schema. Otherwise two empty
// catalogues would be equal.
const fewest = 50

// Read describes all objects of Pawl's schemas, one sorted line per object, without object ids and
// times. It fails if the schema does not exist.
func Read(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, query)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("catalogue: %w", err)
	}
	if len(lines) < fewest {
		return nil, fmt.Errorf("catalogue: only %d entries, at least %d are expected", len(lines), fewest)
	}
	return lines, nil
}

// Difference returns the lines that got lacks, marked "-", and those that only got has, marked "+".
func Difference(want, got []string) (lines []string) {
	for _, line := range want {
		if !slices.Contains(got, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			lines = append(lines, "+ "+line)
		}
	}
	return lines
}
