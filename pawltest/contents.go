package pawltest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// contents holds hashes of your tables, by name without "public.", of the jobs and of the response.
type contents map[string]table

// A table holds hashes of sorted values, so the order of rows does not count.
type table struct {
	rows    int64
	columns map[string]string // of all values of a column; "": not compared
	// whole is of the rows, in the compared columns.
	whole string
}

// Names by which Ignore addresses columns that belong to no table of yours.
const (
	enqueuedName = "enqueued"
	responseName = "response"
)

// enqueuedJobs selects all jobs that have not ended, including events.
const enqueuedJobs = `(select j.queue, j.kind, j.priority, j.max_attempts, j.payload, j.headers, l.name as lane
  from pawl.job as j
  left join pawl.lane as l on l.id = j.lane_id)`

// responded returns contents with the parts of a response.
func responded(parts map[string]string) contents {
	t := table{rows: 1, columns: map[string]string{}}
	for name, value := range parts {
		t.columns[name] = "=" + value
	}
	return contents{responseName: t}
}

// read returns the contents of the database without the ignored columns, plus the response.
func read(ctx context.Context, pool *pgxpool.Pool, response contents, ignored []string) (contents, error) {
	rows, err := pool.Query(ctx, `select format('%I.%I', n.nspname, c.relname) as name, array_agg(a.attname::text order by a.attnum) as columns
  from pg_class as c
  join pg_namespace as n on n.oid = c.relnamespace
  join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where c.relkind = 'r' and n.nspname not in ('pawl', 'pg_catalog', 'information_schema') and n.nspname not like 'pg\_%'
 group by 1`)
	if err != nil {
		return nil, err
	}
	type described struct {
		Name    string
		Columns []string
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[described])
	if err != nil {
		return nil, err
	}
	all := contents{}
	known := map[string]bool{}
	compared := func(table, column string) bool {
		known[column], known[table+"."+column] = true, true
		return !slices.Contains(ignored, column) && !slices.Contains(ignored, table+"."+column)
	}
	for _, t := range append(tables, described{enqueuedJobs, []string{"queue", "kind", "priority", "max_attempts", "payload", "headers", "lane"}}) {
		short := strings.TrimPrefix(t.Name, "public.")
		if t.Name == enqueuedJobs {
			short = enqueuedName
		}
		chosen := slices.DeleteFunc(slices.Clone(t.Columns), func(column string) bool { return !compared(short, column) })
		if all[short], err = readTable(ctx, pool, t.Name, t.Columns, chosen); err != nil {
			return nil, err
		}
	}
	for name, t := range response {
		t.columns = maps.Clone(t.columns)
		for column := range t.columns {
			if !compared(name, column) {
				t.columns[column] = ""
			}
		}
		all[name] = t
	}
	for _, name := range ignored {
		if !known[name] {
			return nil, fmt.Errorf("no table has the column %q that Ignore names", name)
		}
	}
	return all, nil
}

func readTable(ctx context.Context, pool *pgxpool.Pool, name string, columns, compared []string) (t table, err error) {
	hash := func(columns ...string) string {
		quoted := make([]string, len(columns))
		for i, column := range columns {
			quoted[i] = "t." + pgx.Identifier{column}.Sanitize()
		}
		// The text of a row distinguishes null from empty.
		row := "md5(row(" + strings.Join(quoted, ", ") + ")::text)"
		return "coalesce(md5(string_agg(" + row + ", '' order by " + row + ")), '')"
	}
	query := []string{"count(*)", hash(compared...)}
	for _, column := range compared {
		query = append(query, hash(column))
	}
	hashes := make([]string, len(compared))
	into := []any{&t.rows, &t.whole}
	for i := range hashes {
		into = append(into, &hashes[i])
	}
	if err := pool.QueryRow(ctx, "select "+strings.Join(query, ", ")+" from "+name+" as t").Scan(into...); err != nil {
		return t, fmt.Errorf("read %s: %w", name, err)
	}
	t.columns = make(map[string]string, len(columns))
	for _, column := range columns {
		t.columns[column] = ""
	}
	for i, column := range compared {
		t.columns[column] = "=" + hashes[i]
	}
	return t, nil
}

// differing returns the columns not to compare: those left out, and those that differ from other's.
func (c contents) differing(other contents) (columns []string) {
	for name, t := range c {
		for column, hash := range t.columns {
			if hash == "" || hash != other[name].columns[column] {
				columns = append(columns, name+"."+column)
			}
		}
	}
	return columns
}

func (c contents) without() []string { return c.differing(c) }

// changed reports whether a table or the enqueued jobs changed since before, in the compared
// columns. after is the state after the run that began with before. It reveals swapped values in a
// table whose columns are all compared.
func (c contents) changed(before, after contents) bool {
	for name, t := range before {
		if t.rows != c[name].rows {
			return true
		}
		whole := true
		for column, hash := range c[name].columns {
			if hash != "" && hash != t.columns[column] {
				return true
			}
			whole = whole && hash != ""
		}
		if whole && t.whole != after[name].whole {
			return true
		}
	}
	return false
}

// unlike describes the differences from want, one per line.
func (c contents) unlike(want contents) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		got, want := c[name], want[name]
		what := "table " + name
		switch name {
		case enqueuedName:
			what = "the list of enqueued jobs"
		case responseName:
			what = "the response"
		}
		var columns []string
		for _, column := range slices.Sorted(maps.Keys(want.columns)) {
			if got.columns[column] == want.columns[column] {
				continue
			}
			if name == responseName {
				column = fmt.Sprintf("%s (%.120q)", column, strings.TrimPrefix(got.columns[column], "="))
			}
			columns = append(columns, column)
		}
		switch {
		case got.rows != want.rows:
			lines = append(lines, fmt.Sprintf("%s has %d rows; an undisturbed run leaves %d", what, got.rows, want.rows))
		case len(columns) > 0:
			lines = append(lines, fmt.Sprintf("%s differs in %s from an undisturbed run", what, strings.Join(columns, ", ")))
		case got.whole != want.whole:
			lines = append(lines, fmt.Sprintf("rows of %s have swapped values compared with an undisturbed run", what))
		}
	}
	return lines
}

// moveSequences advances all sequences, so that ids differ, as after a crash.
func moveSequences(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `select nextval(format('%I.%I', n.nspname, c.relname)::regclass)
  from pg_class as c
  join pg_namespace as n on n.oid = c.relnamespace
 cross join generate_series(1, 3)
 where c.relkind = 'S' and n.nspname not in ('pawl', 'pg_catalog', 'information_schema') and n.nspname not like 'pg\_%'`)
	return err
}
