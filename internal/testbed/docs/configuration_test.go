package docs_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// configuration is a package's folder and the types of it that configure something.
type configuration struct {
	folder string
	types  []string
}

// configurations lists the types of docs/reference/configuration.md by the folders of their
// packages, in the page's order.
var configurations = []configuration{
	{"consumer", []string{"Config", "Keep", "Policy", "TxPolicy", "ManyTxPolicy", "TriggerPolicy", "SequenceGate", "Retention"}},
	{"job", []string{"Config", "Queue", "Policy", "ManyPolicy", "Defaults", "Presence", "Backoff", "Request"}},
	{"outbox", []string{"Config", "Event"}},
	{"service", []string{"Config", "HTTPConfig", "Part"}},
	{"command", []string{"Options", "LeaseOptions"}},
	{"command/httpkey", []string{"Options", "Lease", "RetryingClient"}},
	{"guard", []string{"Table", "SweeperConfig"}},
	{"step", []string{"Step", "Transport", "Reconciliation"}},
	{"schedule", []string{"Schedule", "Config"}},
	{"transport/pawlkafka", []string{"Config", "SinkConfig"}},
	{"transport/pawlnats", []string{"Config", "SinkConfig"}},
	{"transport/pawlrabbitmq", []string{"Config", "SinkConfig"}},
	{"transport/pawlsqs", []string{"Config", "SinkConfig", "Message"}},
	{"transport/pawlsqs/sqstest", []string{"Options"}},
	{"transport/webhook", []string{"Config", "ReceiverConfig", "ReconcilerConfig", "GitHubConfig", "HMACConfig"}},
	{"filter/pawlredis", []string{"Config"}},
	{"dashboard", []string{"Config"}},
	{"observe", []string{"EventOptions", "DatabaseOptions"}},
}

// The page of the configuration is what the Go comments say.
func TestConfiguration_IsWhatTheCommentsSay(t *testing.T) {
	t.Parallel()
	const page = "docs/reference/configuration.md"
	const begin, end = "<!-- the comments of the Go types, by make generate -->\n", "\n<!-- the end of the comments -->"
	text := read(t, page)
	before, rest, opened := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s has lost its marks", page)
	}
	var sections strings.Builder
	for _, c := range configurations {
		pkg := packageOf(t, c.folder)
		for _, name := range c.types {
			section(t, &sections, pkg, name)
		}
	}
	want := before + begin + sections.String() + end + after
	if *update {
		if err := os.WriteFile(filepath.Join(root, page), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != want {
		t.Errorf("%s is stale: run make generate", page)
	}
}

// Each exported struct that is called a configuration is on the page.
func TestConfiguration_IsComplete(t *testing.T) {
	t.Parallel()
	unpublished := regexp.MustCompile(`(^|/)(internal|cmd|bench|examples|testdata)/`)
	configures := regexp.MustCompile(`(?m)^\s*(?:type )?((?:[A-Z]\w*)?(?:Config|Options|Policy)) struct {`)
	for _, file := range files(t, ".go") {
		if unpublished.MatchString(file) || strings.HasSuffix(file, "_test.go") {
			continue
		}
		folder := filepath.Dir(file)
		for _, m := range configures.FindAllStringSubmatch(read(t, file), -1) {
			listed := slices.ContainsFunc(configurations, func(c configuration) bool {
				return c.folder == folder && slices.Contains(c.types, m[1])
			})
			if !listed {
				t.Errorf("%s: %s is not in docs/reference/configuration.md: add it to configurations", file, m[1])
			}
		}
	}
}

// packageOf returns the documentation of the package in a folder of the repository.
func packageOf(t *testing.T, folder string) *doc.Package {
	t.Helper()
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, file := range files(t, ".go") {
		if filepath.Dir(file) != folder || strings.HasSuffix(file, "_test.go") {
			continue
		}
		one, err := parser.ParseFile(fset, file, read(t, file), parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, one)
	}
	pkg, err := doc.NewFromFiles(fset, parsed, "github.com/pawl-go/pawl/"+folder)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// section writes the section of a type: its comment, and its fields with theirs.
func section(t *testing.T, w *strings.Builder, pkg *doc.Package, name string) {
	t.Helper()
	for _, typ := range pkg.Types {
		if typ.Name != name {
			continue
		}
		fmt.Fprintf(w, "\n## %s.%s\n\n%s\n\n", pkg.Name, name, markdown(pkg, typ.Doc))
		fields := typ.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType).Fields.List
		for len(fields) > 0 {
			n := 1 // as many as share the first one's comment
			for n < len(fields) && commentOf(fields[n]) == "" && fields[n].Names != nil {
				n++
			}
			if line := line(pkg, fields[:n]); line != "" {
				fmt.Fprintf(w, "- %s\n%s", line, values(pkg, fields[0].Type))
			}
			fields = fields[n:]
		}
		return
	}
	t.Errorf("package %s has no type %s", pkg.Name, name)
}

// line returns the names of fields and their comment, or "" if none is exported.
func line(pkg *doc.Package, fields []*ast.Field) string {
	if fields[0].Names == nil {
		embedded := fields[0].Type.(*ast.Ident).Name
		return fmt.Sprintf("`%s`: see [%s.%[1]s](#%[2]s%[3]s).", embedded, pkg.Name, strings.ToLower(embedded))
	}
	var names []string
	for _, field := range fields {
		for _, n := range field.Names {
			if n.IsExported() {
				names = append(names, n.Name)
			}
		}
	}
	if names == nil {
		return ""
	}
	said := strings.ReplaceAll(strings.ReplaceAll(markdown(pkg, commentOf(fields[0])), "\n", "\n  "), "\n  \n", "\n\n")
	plain, code := listed(names), listed(quoted(names))
	if after, found := strings.CutPrefix(said, plain+" "); found {
		return code + " " + after
	}
	return code + ": " + said
}

// values returns the list of a type's constants, if it is a type of the package that has some.
func values(pkg *doc.Package, of ast.Expr) string {
	var list strings.Builder
	name, _ := of.(*ast.Ident)
	for _, typ := range pkg.Types {
		if name == nil || typ.Name != name.Name {
			continue
		}
		for _, group := range typ.Consts {
			for _, spec := range group.Decl.Specs {
				c := spec.(*ast.ValueSpec)
				said := markdown(pkg, c.Doc.Text()+c.Comment.Text())
				said = strings.ReplaceAll(strings.TrimPrefix(said, c.Names[0].Name+" "), "\n\n", " ")
				if said != "" {
					fmt.Fprintf(&list, "  - `%s`: %s\n", c.Names[0].Name, said)
				}
			}
		}
	}
	return list.String()
}

func commentOf(field *ast.Field) string { return field.Doc.Text() + field.Comment.Text() }

func quoted(names []string) (all []string) {
	for _, name := range names {
		all = append(all, "`"+name+"`")
	}
	return all
}

// listed joins names as a sentence does.
func listed(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// unlisted is the address of a link to a name that is not on the page.
const unlisted = "unlisted"

// markdown returns a Go comment as Markdown, with links to the types of this page. Other names are
// code.
func markdown(pkg *doc.Package, said string) string {
	printer := pkg.Printer()
	printer.HeadingID = func(*comment.Heading) string { return "" }
	printer.DocLinkURL = func(link *comment.DocLink) string {
		of := link.ImportPath
		if of == "" {
			of = pkg.ImportPath
		}
		for _, c := range configurations {
			for _, name := range c.types {
				if of == "github.com/pawl-go/pawl/"+c.folder && name == link.Name && link.Recv == "" {
					return "#" + filepath.Base(c.folder) + strings.ToLower(name)
				}
			}
		}
		return unlisted
	}
	text := strings.TrimSpace(string(printer.Markdown(pkg.Parser().Parse(said))))
	text = strings.ReplaceAll(text, `\_`, "_") // within a word, an underscore needs no escape
	return regexp.MustCompile(`\[([^\]]+)\]\(`+unlisted+`\)`).ReplaceAllString(text, "`$1`")
}
