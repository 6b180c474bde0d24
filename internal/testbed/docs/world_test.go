package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-go/pawl/schema"
)

// A world contains the names that exist.
type world struct {
	paths    map[string]bool     // files and folders below the root
	ends     map[string][]string // files by their last element
	packages map[string][]string // folders of Go packages by the package's name
	// api has the exported names of the public packages, "Config" and "Config.Name", by the name of
	// the package.
	api map[string]map[string]bool
	// usual has the import paths of the public packages and of the examples' imports, by name.
	usual     map[string]string
	own       map[string]members // declared names by folder, exported or not
	tests     map[string]bool    // functions Test…, Fuzz…, Benchmark… and Example…
	targets   map[string]bool    // of the Makefile
	contract  map[string]bool    // functions and views of pawl_v1, "job_enqueue"
	tables    map[string]bool    // tables, types and sequences of schema pawl
	codes     map[string]bool    // SQLSTATEs of Pawl
	metrics   map[string]bool    // metrics and alert rules
	roles     map[string]bool    // of the database
	variables map[string]bool    // PAWL_…, of the environment
	// used has the identifiers of all Go code and the words of its strings, including those of
	// other systems.
	used     map[string]bool
	anchored map[string]map[string]bool // headings by page
}

// members are the names that a package declares. They include the fields and methods of each type.
type members struct {
	names    map[string]bool // "Config", "Config.Name"
	embeds   map[string]bool // types that embed others and may have more members
	imported map[string]bool // names of imported packages; true: of another module
}

var theWorld = sync.OnceValues(explore)

func existing(t *testing.T) *world {
	t.Helper()
	w, err := theWorld()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func explore() (*world, error) {
	w := &world{paths: map[string]bool{}, ends: map[string][]string{}, packages: map[string][]string{}, api: map[string]map[string]bool{},
		usual: map[string]string{}, own: map[string]members{}, tests: map[string]bool{}, targets: map[string]bool{}, contract: map[string]bool{}, tables: map[string]bool{},
		codes: map[string]bool{}, metrics: map[string]bool{}, roles: map[string]bool{}, variables: map[string]bool{}, used: map[string]bool{},
		anchored: map[string]map[string]bool{}}
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, name)
		if below == ".git" || d.Name() == "node_modules" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return err
		}
		below = filepath.ToSlash(below)
		w.paths[below] = true
		if d.IsDir() {
			return err
		}
		w.ends[path.Base(below)] = append(w.ends[path.Base(below)], below)
		return w.read(below)
	})
	if err != nil {
		return nil, err
	}
	collect := func(into map[string]bool, pattern, text string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			into[m[1]] = true
		}
	}
	collect(w.contract, `(?m)^create (?:or replace )?(?:function|view|procedure|type|domain) pawl_v1\.(\w+)`, schema.API())
	for name := range w.paths {
		text, _ := os.ReadFile(filepath.Join(root, name))
		switch path.Ext(name) {
		case ".sql", ".csv", ".yaml":
			collect(w.used, `(\w+)`, string(text))
		}
		switch {
		case name == "Makefile":
			collect(w.targets, `(?m)^([a-z-]+):`, string(text))
		case strings.HasPrefix(name, "schema/tables/") && strings.HasSuffix(name, ".sql"):
			collect(w.tables, `\bpawl\.(\w+)`, string(text))
		case name == "schema/sqlstates.csv":
			collect(w.codes, `(?m)^(P\d{4}),`, string(text))
		case name == "docs/reference/metrics.md":
			collect(w.metrics, "`(pawl_[a-z_]+)`", string(text))
			collect(w.used, "`(pawl\\.[a-z_.]+)`", string(text))
		case name == "deploy/prometheus/pawl.rules.yaml":
			collect(w.metrics, `alert: (\w+)`, string(text))
		case name == "schema/roles.sql":
			collect(w.roles, `(pawl_[a-z]+)`, string(text))
		}
	}
	return w, nil
}

// read records the names that a file declares.
func (w *world) read(name string) error {
	switch {
	case strings.HasSuffix(name, ".md"):
		text, err := os.ReadFile(filepath.Join(root, name))
		w.anchored[name] = anchors(string(text))
		return err
	case path.Dir(name) == "docs/api":
		text, err := os.ReadFile(filepath.Join(root, name))
		exported := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^(?:const|var|type|func|field|method) ([\w.]+)`).FindAllStringSubmatch(string(text), -1) {
			exported[m[1]] = true
		}
		importPath, _, _ := strings.Cut(strings.TrimPrefix(string(text), "package "), "\n")
		w.api[path.Base(importPath)] = exported
		w.usual[path.Base(importPath)] = importPath
		return err
	case strings.HasSuffix(name, ".go") && !strings.Contains(name, "/testdata/"):
		return w.parse(name)
	case strings.HasSuffix(name, ".sh"), path.Dir(name) == ".ci", path.Dir(name) == "proof", name == "Makefile":
		text, err := os.ReadFile(filepath.Join(root, name))
		w.variablesOf(string(text))
		return err
	}
	return nil
}

const module = "github.com/pawl-go/pawl"

var word = regexp.MustCompile(`pawl(?:\.[a-z_]+)+|\w+`)

func (w *world) variablesOf(text string) {
	for _, m := range regexp.MustCompile(`\bPAWL_[A-Z_]+\b`).FindAllString(text, -1) {
		w.variables[m] = true
	}
}

func (w *world) parse(name string) error {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	folder := path.Dir(name)
	m, known := w.own[folder]
	if !known {
		m = members{names: map[string]bool{}, embeds: map[string]bool{}, imported: map[string]bool{}}
		w.own[folder] = m
		w.packages[strings.TrimSuffix(file.Name.Name, "_test")] = append(w.packages[strings.TrimSuffix(file.Name.Name, "_test")], folder)
	}
	for _, i := range file.Imports {
		from := strings.Trim(i.Path.Value, `"`)
		imported := path.Base(from)
		if i.Name != nil {
			imported = i.Name.Name
		}
		if _, known := w.usual[imported]; !known && strings.HasPrefix(name, "examples/") && !strings.HasPrefix(name, "examples/recipes/") {
			w.usual[imported] = from
		}
		m.imported[imported] = m.imported[imported] || !strings.HasPrefix(from, module)
	}
	if folder != "internal/testbed/docs" { // its tests contain names that must not exist
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				w.variablesOf(n.Value)
				w.used[strings.Trim(n.Value, "`\"")] = true
				for _, text := range word.FindAllString(n.Value, -1) {
					w.used[text] = true
				}
			case *ast.Ident:
				w.used[n.Name] = true
			}
			return true
		})
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			switch {
			case d.Recv != nil:
				m.names[nameOf(d.Recv.List[0].Type)+"."+d.Name.Name] = true
			case strings.HasSuffix(name, "_test.go"):
				w.tests[d.Name.Name] = true
				fallthrough
			default:
				m.names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						m.names[n.Name] = true
					}
				case *ast.TypeSpec:
					m.names[s.Name.Name] = true
					m.typed(s.Name.Name, s.Type, s.Assign.IsValid())
				}
			}
		}
	}
	return nil
}

// typed records the members of a type.
func (m members) typed(name string, expr ast.Expr, alias bool) {
	var fields *ast.FieldList
	switch e := expr.(type) {
	case *ast.StructType:
		fields = e.Fields
	case *ast.InterfaceType:
		fields = e.Methods
	default:
		if _, basic := e.(*ast.Ident); alias || !basic {
			m.embeds[name] = true
		}
		return
	}
	for _, f := range fields.List {
		if len(f.Names) == 0 {
			m.embeds[name] = true
			m.names[name+"."+nameOf(f.Type)] = true
		}
		for _, n := range f.Names {
			m.names[name+"."+n.Name] = true
		}
	}
}

// nameOf returns the last name of a type: Message of *consumer.Message[T].
func nameOf(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.IndexListExpr:
		return nameOf(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}
