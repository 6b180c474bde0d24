package doctor_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/internal/catalog"
)

// actions are the parts of a text that are filled in, and column is a column in one.
var (
	actions = regexp.MustCompile(`\{\{.*?\}\}`)
	column  = regexp.MustCompile(`\.([a-z][a-z0-9_]+)`)
)

// Each query has words, and the words name columns that the query returns.
func TestQuestions_NameColumnsOfTheirQueries(t *testing.T) {
	t.Parallel()
	p := admit(t, "clinic_questions")
	p.exec(p.conn, "select set_config('pawl.search_path', 'public', false)")
	const folder = "../internal/catalog/doctor/"
	files, err := filepath.Glob(folder + "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	words := doctor.Words()
	if len(files) != len(words) {
		t.Errorf("%d files for the queries %v", len(files), slices.Sorted(maps.Keys(words)))
	}
	for query, texts := range words {
		sql, err := os.ReadFile(folder + query + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		inner := strings.ReplaceAll(strings.ReplaceAll(string(sql), "/* presence free */", catalog.PresenceFree), "$1", "0")
		rows, err := p.conn.Query(t.Context(), "select * from ("+inner+") as r limit 0", pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, f := range rows.FieldDescriptions() {
			columns = append(columns, f.Name)
		}
		rows.Close()
		if rows.Err() != nil {
			t.Fatalf("%s: %v", query, rows.Err())
		}
		for _, text := range texts {
			for _, action := range actions.FindAllString(text, -1) {
				for _, named := range column.FindAllStringSubmatch(action, -1) {
					if !slices.Contains(columns, named[1]) {
						t.Errorf("%s: there is no column %s: %s", query, named[1], text)
					}
				}
			}
		}
	}
}
