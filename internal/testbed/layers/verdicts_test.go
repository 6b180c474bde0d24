package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// codes are the files that compare SQLSTATEs for another purpose than a verdict, with the reason.
var codes = map[string]string{
	"cmd/pawl/internal/cli/adopt.go":          "words an error for a person at a shell",
	"cmd/pawl/internal/cli/database_error.go": "words an error for a person at a shell",
	"cmd/pawl/internal/cli/jobs.go":           "words an error for a person at a shell",
	"cmd/pawl/internal/cli/migrate.go":        "grants again after a race that PostgreSQL reports as XX000",
	"command/failure.go":                      "tells codes of Pawl's from others",
	"dashboard/read.go":                       "says that a page took too long",
	"doctor/doctor.go":                        "says which checks it may not make",
	"hint.go":                                 "has the next step for an error",
	"internal/conns/pooler.go":                "asks whether a pooler refuses transactions",
	"internal/engine/engine.go":               "asks whether a server understands a question",
	"internal/testbed/pgtest/host.go":         "for tests",
	"internal/testbed/pgtest/outage.go":       "for tests",
	"internal/sqldriver/sqldriver.go":         "asks whether a driver hands on errors",
	"internal/txn/open.go":                    "what a savepoint that is gone says",
	"migrate/migrate.go":                      "asks whether the schema is there",
	"transport/pawlnats/pull.go":              "statuses of NATS",
	"vet/swallow.go":                          "looks for the comparison in users' code",
}

// sqlstate matches a SQLSTATE or a class of SQLSTATEs.
var sqlstate = regexp.MustCompile(`^([0-9][0-9A-Z]|[A-Z][0-9]|XX)([0-9A-Z]{1,3})?$`)

// Only the table of package verdict decides what a database error means. No other file compares
// SQLSTATEs for that.
func TestVerdicts_AreInOneTable(t *testing.T) {
	t.Parallel()
	met := map[string]bool{}
	for _, f := range sources(t) {
		if filepath.Dir(f.name) == "internal/verdict" {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, filepath.Join("../../..", f.name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		compared := func(all ...ast.Expr) {
			for _, e := range all {
				lit, ok := e.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					continue
				}
				if text, err := strconv.Unquote(lit.Value); err == nil && sqlstate.MatchString(text) {
					met[f.name] = true
					if codes[f.name] == "" {
						t.Errorf("%s: compares the SQLSTATE %s: the table of package verdict says what it means", set.Position(lit.Pos()), text)
					}
				}
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					compared(n.X, n.Y)
				}
			case *ast.CaseClause:
				compared(n.List...)
			case *ast.CallExpr:
				if name := called(n); name == "HasPrefix" || name == "Contains" || name == "EqualFold" {
					compared(n.Args...)
				}
			}
			return true
		})
	}
	for name := range codes {
		if !met[name] {
			t.Errorf("%s compares no SQLSTATE any more: take it from the list", name)
		}
	}
}
