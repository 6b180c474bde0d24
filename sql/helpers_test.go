package sql_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// catalogue describes everything in Pawl's schemas, one line an object, without what differs by nature (OIDs, times).
func catalogue(t *testing.T, url string) []string {
	t.Helper()
	conn := connect(t, url)
	rows, _ := conn.Query(t.Context(), `
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
order by 1`)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func difference(a, b []string) (lines []string) {
	for _, l := range a {
		if !slices.Contains(b, l) {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			lines = append(lines, "+ "+l)
		}
	}
	return lines
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, url, script string) {
	t.Helper()
	if _, err := connect(t, url).Exec(t.Context(), script); err != nil {
		t.Fatal(err)
	}
}

func asPgError(err error, target **pgconn.PgError) bool { return errors.As(err, target) }

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.WriteFile(to, []byte(read(t, from)), 0o644); err != nil {
		t.Fatal(err)
	}
}
