package cli

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schema"
)

// The removal of a version is shown as its own statements, with the rows of the tables that these
// name, and of no other.
func TestRemoval(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pawltest.URL(t, "select pawl_v1.job_enqueue('q', 'k', '') from generate_series(1, 3)", "select pawl_v1.worker_register('w')"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for name, c := range map[string]struct {
		down, statements, rows string
		names                  []string
	}{
		"a column":           {"-- Drops the note; pawl.worker stays.\nalter table pawl.job\n  drop column note; -- and pawl.lane\n", "alter table pawl.job drop column note;", "job 3", []string{"job"}},
		"nothing of a table": {"drop function pawl_v1.later();", "drop function pawl_v1.later();", "", []string{}},
		"another's table":    {"drop table pawl.later;", "drop table pawl.later;", "", []string{"later"}},
	} {
		statements, names := removal([]schema.Version{{Down: c.down}})
		rows, err := countRows(t.Context(), conn, names)
		if statements != c.statements || !slices.Equal(names, c.names) || rows != c.rows || err != nil {
			t.Errorf("%s: %q, %v, %q, %v", name, statements, names, rows, err)
		}
	}
}
