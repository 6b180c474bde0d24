package docs_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pawl-go/pawl/pawltest"
)

var update = flag.Bool("update", false, "write what the examples of the SQL reference print into its template")

const (
	sqlTemplate = "schema/internal/gen/reference/sql.md.tmpl"
	newDatabase = "The examples begin in a new database."
)

// examplePart matches what begins a new database, and the examples.
var examplePart = regexp.MustCompile("(?ms)^" + newDatabase + "|^```sql\n(.*?)^```$")

// The examples of the SQL reference print what the page shows, in the order of the page. Where it
// says so, they begin in a new database.
func TestSQL_ExamplesPrintWhatIsShown(t *testing.T) {
	t.Parallel()
	shown := read(t, sqlTemplate)
	session, ran := newSession(t), 0
	printed := examplePart.ReplaceAllStringFunc(shown, func(part string) string {
		m := examplePart.FindStringSubmatch(part)
		if m[1] == "" {
			session = newSession(t)
			return part
		}
		var all []string
		for _, s := range statements(m[1]) {
			ran++
			all = append(all, strings.TrimSuffix(s+"\n"+session.run(s), "\n"))
		}
		return "```sql\n" + joined(all) + "\n```"
	})
	if ran < 150 {
		t.Errorf("only %d statements ran", ran)
	}
	if printed == shown {
		return
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, sqlTemplate), []byte(printed), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	is, want := strings.Split(printed, "\n"), strings.Split(shown, "\n")
	for i := range want {
		if i >= len(is) || is[i] != want[i] {
			t.Fatalf("%s:%d shows\n%s\nit prints\n%s\nIf that is right, run this test with -update, then make generate.",
				sqlTemplate, i+1, excerpt(want, i), excerpt(is, i))
		}
	}
}

func excerpt(lines []string, at int) string {
	return strings.Join(lines[min(at, len(lines)):min(at+8, len(lines))], "\n")
}

// joined puts a blank line behind each statement that printed something.
func joined(examples []string) string {
	var text strings.Builder
	for i, e := range examples {
		text.WriteString(e)
		if i == len(examples)-1 {
			break
		}
		text.WriteString("\n")
		if strings.HasSuffix(e, ")") || !strings.HasSuffix(e, ";") && !strings.HasSuffix(e, `\gset`) {
			text.WriteString("\n")
		}
	}
	return text.String()
}

var (
	statementBegin = regexp.MustCompile(`^(select|insert|update|delete|begin|commit|savepoint|rollback)\b`)
	statementEnd   = regexp.MustCompile(`(;|\\gset)$`)
)

// statements returns the statements of an example, without what they print.
func statements(example string) (all []string) {
	open := false
	for _, line := range strings.Split(example, "\n") {
		switch {
		case open:
			all[len(all)-1] += "\n" + line
		case statementBegin.MatchString(line):
			all = append(all, line)
			open = true
		}
		if statementEnd.MatchString(line) {
			open = false
		}
	}
	return all
}

// A session prints like psql, with VERBOSITY verbose and without LOCATION and CONTEXT.
type session struct {
	t         *testing.T
	conn      *pgconn.PgConn
	variables map[string]string // set by \gset
}

func newSession(t *testing.T) *session {
	t.Helper()
	conn, err := pawltest.DB(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	s := &session{t, conn.Conn().PgConn(), map[string]string{}}
	s.run("set timezone = 'UTC'; create table orders (id text, cents int);")
	return s
}

// run returns what a statement prints.
func (s *session) run(statement string) string {
	query, keep := strings.CutSuffix(statement, `\gset`)
	for name, value := range s.variables {
		query = strings.ReplaceAll(query, ":'"+name+"'", "'"+value+"'")
		query = strings.ReplaceAll(query, ":"+name, value)
	}
	results, err := s.conn.Exec(s.t.Context(), query).ReadAll()
	var raised *pgconn.PgError
	if errors.As(err, &raised) {
		text := fmt.Sprintf("ERROR:  %s: %s\n", raised.Code, raised.Message)
		if raised.Detail != "" {
			text += "DETAIL:  " + raised.Detail + "\n"
		}
		if raised.Hint != "" {
			text += "HINT:  " + raised.Hint + "\n"
		}
		return text
	}
	if err != nil {
		s.t.Fatalf("%v:\n%s", err, statement)
	}
	last := results[len(results)-1]
	if keep {
		for i, f := range last.FieldDescriptions {
			s.variables[f.Name] = string(last.Rows[0][i])
		}
		return ""
	}
	return aligned(last)
}

// aligned returns a result as psql prints it.
func aligned(r *pgconn.Result) string {
	if len(r.FieldDescriptions) == 0 {
		return ""
	}
	widths := make([]int, len(r.FieldDescriptions))
	for i, f := range r.FieldDescriptions {
		widths[i] = utf8.RuneCountInString(f.Name)
		for _, row := range r.Rows {
			widths[i] = max(widths[i], utf8.RuneCount(row[i]))
		}
	}
	line := func(between string, cell func(i int) string) string {
		var cells []string
		for i := range widths {
			cells = append(cells, cell(i))
		}
		return strings.TrimRight(strings.Join(cells, between), " ") + "\n"
	}
	pad := func(n int) string { return strings.Repeat(" ", n) }
	text := line("|", func(i int) string {
		name := r.FieldDescriptions[i].Name
		free := widths[i] - utf8.RuneCountInString(name)
		return pad(1+free/2) + name + pad(1+free-free/2)
	})
	text += line("+", func(i int) string { return strings.Repeat("-", widths[i]+2) })
	for _, row := range r.Rows {
		text += line("|", func(i int) string {
			value, free := string(row[i]), widths[i]-utf8.RuneCount(row[i])
			switch r.FieldDescriptions[i].DataTypeOID {
			case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.NumericOID:
				return pad(1+free) + value + " "
			}
			return " " + value + pad(free+1)
		})
	}
	if len(r.Rows) == 1 {
		return text + "(1 row)\n"
	}
	return text + fmt.Sprintf("(%d rows)\n", len(r.Rows))
}
