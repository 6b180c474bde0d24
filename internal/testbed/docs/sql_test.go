package docs_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/pawltest"
)

var (
	sqlFence = regexp.MustCompile("(?ms)^ *```sql\n(.*?)^ *```$")
	sqlSpan  = regexp.MustCompile("`((?:select|with) [^`\n]+)`")
	// incomplete matches queries with parameters or variables.
	incomplete = regexp.MustCompile(`…|\.\.\.|\$\d|:\w|\\gset|\bp_[a-z]`)
	toExplain  = regexp.MustCompile(`(?is)^(?:select|with|insert|update|delete)\b`)
	sqlRemark  = regexp.MustCompile(`--.*`)
)

// PostgreSQL can plan the queries of each page, so the tables, columns and functions of Pawl in
// them exist. Queries on the reader's tables are skipped.
func TestSQL_OfPages(t *testing.T) {
	t.Parallel()
	pool, planned := pawltest.DB(t), 0
	for _, page := range files(t, ".md") {
		text := read(t, page)
		var queries []string
		for _, m := range sqlFence.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "$$") {
				continue // a function: its body runs where the page is tested
			}
			queries = append(queries, strings.Split(sqlRemark.ReplaceAllString(m[1], ""), ";")...)
		}
		for _, m := range sqlSpan.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			queries = append(queries, m[1])
		}
		for _, query := range queries {
			query = strings.TrimSpace(query)
			if !toExplain.MatchString(query) || incomplete.MatchString(strings.ReplaceAll(query, "::", "")) {
				continue
			}
			_, err := pool.Exec(t.Context(), "explain "+query)
			var said *pgconn.PgError
			switch {
			case err == nil:
				planned++
			case errors.As(err, &said) && (said.Code == "42P01" || said.Code == "42883" || said.Code == "3F000") && !strings.Contains(said.Message, "pawl"):
			default:
				t.Errorf("%s: %v:\n%s", page, err, query)
			}
		}
	}
	if planned < 60 {
		t.Errorf("only %d queries were planned", planned)
	}
}

var (
	viewColumns  = regexp.MustCompile("(?s)\n### (\\w+)\n\n```\n(\\w+)\\s+→ (.*?)\n```")
	tableColumns = regexp.MustCompile("(?m)^\\| `pawl\\.(\\w+)`[^|]*\\|[^|]*\\|(.*)\\|$")
	named        = regexp.MustCompile("`(\\w+)`")
	aside        = regexp.MustCompile(`\([^)]*\)`)
)

// The reference of the contract shows the columns of each view, in their order, and has each column
// of each table.
func TestSQL_ReferenceHasTheColumns(t *testing.T) {
	t.Parallel()
	pool, page := pawltest.DB(t), read(t, "docs/reference/sql.md")
	columns := map[string]string{}
	rows, err := pool.Query(t.Context(), `
		select c.table_schema || '.' || c.table_name, string_agg(c.column_name, ', ' order by c.ordinal_position)
		  from information_schema.columns as c
		 where c.table_schema in ('pawl', 'pawl_v1')
		 group by c.table_schema, c.table_name`)
	if err != nil {
		t.Fatal(err)
	}
	var name, list string
	if _, err := pgx.ForEachRow(rows, []any{&name, &list}, func() error {
		columns[name] = list
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, m := range viewColumns.FindAllStringSubmatch(page, -1) {
		view := "pawl_v1." + m[1]
		shown[view] = true
		if is := strings.Join(strings.Fields(m[3]), " "); is != columns[view] {
			t.Errorf("the page shows %s with columns %s, it has %s", view, is, columns[view])
		}
	}
	for _, m := range tableColumns.FindAllStringSubmatch(page, -1) {
		table := "pawl." + m[1]
		shown[table] = true
		has := map[string]bool{}
		for _, n := range named.FindAllStringSubmatch(aside.ReplaceAllString(m[2], ""), -1) {
			has[n[1]] = true
		}
		for _, column := range strings.Split(columns[table], ", ") {
			if !has[column] {
				t.Errorf("the row of %s does not name column %s", table, column)
			}
			delete(has, column)
		}
		for column := range has {
			t.Errorf("the row of %s names %q, which it does not have", table, column)
		}
	}
	for name := range columns {
		if !shown[name] && !strings.HasPrefix(name, "pawl.archive_") {
			t.Errorf("the page does not show %s", name)
		}
	}
}
