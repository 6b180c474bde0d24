package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The table lists every step that reports an event. If the source contains the kind and the step
// together, the step is in the row of the kind. Every step of the table is in the source.
func TestEvents_NameTheirSteps(t *testing.T) {
	t.Parallel()
	const page = "docs/reference/events.md"
	text := read(t, page)
	rows := map[string]string{} // by constant
	for _, m := range regexp.MustCompile("(?m)^\\| `\\w+` \\| `(Event\\w+)` \\|.*$").FindAllStringSubmatch(text, -1) {
		rows[m[1]] = m[0]
	}
	strung, pairs := map[string]bool{}, 0
	for _, name := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") || !reporting.MatchString(name) {
			continue
		}
		for _, r := range reports(t, name, strung) {
			switch {
			case strings.HasPrefix(name, "internal/"): // only their strings count
			case r.kind == "" && !strings.Contains(text, "`"+r.op+"`"):
				t.Errorf("%s names no step %s, which %s reports", page, r.op, name)
			case r.kind != "" && !strings.Contains(rows[r.kind], "`"+r.op+"`"):
				t.Errorf("%s: the row of %s does not name %s, which %s reports", page, r.kind, r.op, name)
			}
			pairs++
		}
	}
	for _, row := range rows {
		columns := strings.Split(row, "|")
		for _, m := range regexp.MustCompile("`([a-z_]+\\.[a-z_]+)`").FindAllStringSubmatch(columns[len(columns)-2], -1) {
			if !strung[m[1]] {
				t.Errorf("%s names the step %s, which is not in the source", page, m[1])
			}
		}
	}
	if pairs < 60 {
		t.Errorf("found only %d reports", pairs)
	}
}

// reporting matches the folders whose code reports events. internal/contract names the steps that
// are statements.
var reporting = regexp.MustCompile(`^(?:command|consumer|guard|inbox|internal/contract|job|lock|observe|outbox|schedule|service|step|transport)/`)

// A report is an event in the source. The kind is empty if it is a variable there.
type report struct{ kind, op string }

// reports returns the events of a file that are created with a constant step. It adds the file's
// strings to strung.
func reports(t *testing.T, name string, strung map[string]bool) (all []report) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range parsed.Decls {
		local := map[string]string{}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil {
					strung[text] = true
				}
			case *ast.ValueSpec:
				for i := range min(len(n.Names), len(n.Values)) {
					local[n.Names[i].Name] = stringOf(n.Values[i], local)
				}
			case *ast.CompositeLit:
				if event, is := n.Type.(*ast.SelectorExpr); is && event.Sel.Name == "Event" {
					r := report{}
					for _, e := range n.Elts {
						if kv, is := e.(*ast.KeyValueExpr); is {
							switch kv.Key.(*ast.Ident).Name {
							case "Kind":
								r.kind = kindOf(kv.Value)
							case "Op":
								r.op = stringOf(kv.Value, local)
							}
						}
					}
					if r.op != "" {
						all = append(all, r)
					}
				}
			case *ast.CallExpr:
				for i := range len(n.Args) - 1 {
					if kind, op := kindOf(n.Args[i]), stringOf(n.Args[i+1], local); kind != "" && op != "" {
						all = append(all, report{kind, op})
					}
				}
			}
			return true
		})
	}
	return all
}

func kindOf(e ast.Expr) string {
	if s, is := e.(*ast.SelectorExpr); is && strings.HasPrefix(s.Sel.Name, "Event") && len(s.Sel.Name) > len("Event") {
		return s.Sel.Name
	}
	return ""
}

func stringOf(e ast.Expr, local map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.Ident:
		return local[e.Name]
	}
	return ""
}

// The value of an event is the name of its constant in snake case, so that metrics, charts and code
// use one word.
func TestEvents_ValuesAreTheNames(t *testing.T) {
	t.Parallel()
	found := regexp.MustCompile(`(?m)^\tEvent(\w+)\s+EventKind = "(\w+)"`).FindAllStringSubmatch(read(t, "event.go"), -1)
	for _, m := range found {
		snake := strings.ToLower(regexp.MustCompile(`(.)([A-Z])`).ReplaceAllString(m[1], "${1}_$2"))
		if snake != m[2] {
			t.Errorf("Event%s is %q, want %q", m[1], m[2], snake)
		}
	}
	if len(found) < 30 {
		t.Errorf("found only %d events", len(found))
	}
}
