package layers

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownPath are folders whose statements run where no other role may create objects, or belong to
// users.
var ownPath = map[string]string{
	"bench":                   "a server of its own",
	"cmd/pawl/internal/adopt": "each transaction sets the path",
	"examples":                "the SQL of applications",
	"pawltest":                "a database that a test made",
	"internal/testbed":        "a server or database that a test made",
	"vet":                     "the SQL of applications, as test data",
}

// pinnedBy are functions that run a text under Pawl's own path, or put it into a script that sets
// the path.
var pinnedBy = []string{"Look", "lookOne", "lookRows", "lookWhole", "readPage", "Pinned"}

// pieces are functions and package-level strings that contain a part of a statement, with the
// reason why its names are safe.
var pieces = map[string]string{
	"guard.templates":                 "your table, whose types and operators may be your own",
	"guard.highest":                   "the same",
	"guard.giveBack":                  "the same",
	"guard.marked":                    "the same",
	"guard.markFinal":                 "the same",
	"guard.countFinal":                "the same",
	"internal/catalog.query":          "read through Look",
	"internal/catalog.openDeliveries": "read through Look",
	"internal/catalog.page":           "the same",
	"internal/catalog.KeySamplesSQL":  "the same",
	"internal/catalog.selected":       "the same",
	"internal/catalog.commands":       "the same",
	"internal/catalog.queues":         "the same",
	"internal/catalog.schedules":      "the same",
	"internal/catalog.glance":         "the same",
	"internal/catalog.PresenceFree":   "the same",
	"internal/contract.byEnd":         "follows pawl_v1.",
	"internal/contract.ofConsumer":    "follows pawl_v1.",
}

// sends are functions that run a text under the caller's path, even inside a function that uses one
// of pinnedBy.
var sends = []string{"Exec", "ExecContext", "Query", "QueryContext", "QueryRow", "QueryRowContext", "Queue", "one", "many"}

// Each SQL text outside of tests qualifies its names or runs under Pawl's path. Otherwise it could
// use another role's operator, function or type.
func TestSQL_InGoResolvesNothingThroughThePath(t *testing.T) {
	t.Parallel()
	texts, used := 0, map[string]bool{}
	for _, f := range parsedFiles(t) {
		if why := underOwnPath(f.name); why != "" {
			used[why] = true
			continue
		}
		for _, text := range sqlTexts(f.file) {
			texts++
			found := loose(text.sql)
			if len(found) == 0 || text.pinned {
				continue
			}
			where := path.Dir(f.name) + "." + text.in
			if pieces[where] != "" {
				used[where] = true
				continue
			}
			t.Errorf("%s: %s: these resolve through the caller's search_path: %q\nqualify them, operator(pg_catalog.=), or read through catalog.Look; see docs/decisions/0035-search-path.md",
				f.set.Position(text.pos), text.in, found)
		}
	}
	if texts < 150 {
		t.Errorf("%d SQL texts: the test does not see them", texts)
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(pieces)), slices.Collect(maps.Keys(ownPath))) {
		if !used[name] {
			t.Errorf("%s needs no exception any more", name)
		}
	}
}

func underOwnPath(name string) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if ownPath[dir] != "" {
			return dir
		}
	}
	return ""
}

// A sqlText is a string expression. § replaces its non-constant parts.
type sqlText struct {
	sql    string
	in     string // the function or the package-level name
	pinned bool
	pos    token.Pos
}

var (
	beginsSQL = regexp.MustCompile(`(?is)^\s*(select|insert into|update|delete from|with(\s+recursive)?\s+\w+\s*(\([\w, ]*\)\s*)?as|truncate|create|alter|drop|grant|revoke|set\s|do\s|from|where|and|or|order by|union|returning|group by|values)\b`)
	endsSQL   = regexp.MustCompile(`(?s)\$(\d|%d)|\bpawl(_v1)?\.\w|\bpg_\w|::|[=<>]\s|^select\s.*\d|\w\(|\bSCHEMA\b|\bfrom\s+\w+\.|\w+\.\w+`)
	holdsSQL  = regexp.MustCompile(`\$(\d|%d)|\bpawl(_v1)?\.[a-z]+ as |pg_catalog\.|clock_timestamp`)
)

// sqlTexts returns the string expressions of a file that are SQL or a part of it.
func sqlTexts(file *ast.File) (texts []sqlText) {
	for _, declared := range file.Decls {
		in, under := "", false
		if f, is := declared.(*ast.FuncDecl); is {
			in, under = f.Name.Name, calls(f, pinnedBy)
		}
		var walk func(n ast.Node, in string, under bool)
		walk = func(n ast.Node, in string, under bool) {
			ast.Inspect(n, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ImportSpec, *ast.Field:
					_, field := n.(*ast.Field)
					return field && n.(*ast.Field).Tag == nil
				case *ast.ValueSpec:
					if in == "" {
						for _, value := range n.Values {
							walk(value, n.Names[0].Name, false)
						}
						return false
					}
				case *ast.CallExpr:
					if name := calledName(n); slices.Contains(sends, name) && under || slices.Contains(pinnedBy, name) && !under {
						for _, argument := range n.Args {
							walk(argument, in, slices.Contains(pinnedBy, name))
						}
						walk(n.Fun, in, under)
						return false
					}
				case *ast.BinaryExpr, *ast.BasicLit:
					text, constant := folded(n.(ast.Expr))
					if !constant {
						return true
					}
					if beginsSQL.MatchString(text) && endsSQL.MatchString(text) || holdsSQL.MatchString(text) {
						texts = append(texts, sqlText{text, in, under, n.Pos()})
					}
					return false
				}
				return true
			})
		}
		walk(declared, in, under)
	}
	return texts
}

// folded concatenates a sum of strings. holds is false if there is no string.
func folded(e ast.Expr) (text string, holds bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			left, l := folded(e.X)
			right, r := folded(e.Y)
			return left + right, l || r
		}
	case *ast.ParenExpr:
		return folded(e.X)
	}
	return "§", false
}

func calls(f *ast.FuncDecl, names []string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		found = found || is && slices.Contains(names, calledName(call))
		return !found
	})
	return found
}

func calledName(call *ast.CallExpr) string {
	f := call.Fun
	if generic, is := f.(*ast.IndexExpr); is {
		f = generic.X
	}
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

type parsedFile struct {
	name string
	set  *token.FileSet
	file *ast.File
}

// parsedFiles returns every Go file of every module, except tests.
func parsedFiles(t *testing.T) (files []parsedFile) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("../../.."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && name == ".git" {
			return cmp.Or(err, fs.SkipDir)
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join("../../..", name), nil, 0)
		files = append(files, parsedFile{name, set, file})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
