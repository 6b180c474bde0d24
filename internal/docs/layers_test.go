package docs_test

import (
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/pawl-go/pawl"

// allowed lists, for each package below the command line, what of ours it may import; tests may import anything.
var allowed = map[string][]string{
	".":                         {"internal/jcs", "internal/receipt"},
	"sql":                       {},
	"migrate":                   {".", "sql"},
	"inbox":                     {".", "internal/contract"},
	"job":                       {".", "internal/contract", "internal/fault", "internal/solo", "internal/txn", "migrate"},
	"flow":                      {".", "inbox", "internal/fault", "internal/receipt", "internal/solo", "internal/txn", "job", "migrate"},
	"pawltest":                  {"internal/pgtest", "migrate", "sql"},
	"transport/sqs":             {"."},
	"transport/sqs/sqstest":     {},
	"internal/checker":          {},
	"internal/contract":         {"."},
	"internal/docs":             {},
	"internal/fault":            {},
	"internal/gen/dist":         {"migrate"},
	"internal/gen/sqlstates":    {},
	"internal/jcs":              {},
	"internal/migratetest":      {},
	"internal/pgtest":           {"internal/postgres"},
	"internal/pgtest/catalogue": {},
	"internal/postgres":         {},
	"internal/receipt":          {},
	"internal/solo":             {},
	"internal/txn":              {"."},
	"internal/wireproxy":        {},
}

// Imports point downward. A new package is entered above, in its layer; a new edge is a decision.
func TestLayers_PointDownward(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, ".go") {
		from := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(from, "cmd/") || strings.HasPrefix(from, "examples") {
			continue
		}
		may, known := allowed[from]
		if !known {
			t.Errorf("%s: package %s is in no layer", file, from)
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			to, ours := strings.CutPrefix(imported+"/", module+"/")
			if to = path.Clean(to); ours && !slices.Contains(may, to) {
				t.Errorf("%s: package %s must not import %s", file, from, to)
			}
		}
	}
}
