package surface

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The table of the operator's verbs names each function and method of package ops that changes
// something. So the command line and the dashboard offer it.
func TestVerbs_AreInTheTable(t *testing.T) {
	t.Parallel()
	h := loaded(t)
	verbs := changing(h.types[module+"/ops"])
	if len(verbs) < 20 {
		t.Fatalf("only %d verbs: %v", len(verbs), verbs)
	}
	used := h.usedBy(t, "../../operator")
	for _, verb := range verbs {
		if !used[verb] {
			t.Errorf("%s changes something and is not in the table: add an entry to internal/operator/table.go", verb)
		}
	}
}

// changing returns the exported functions and methods of a package that take its By.
func changing(pkg *types.Package) (names []string) {
	by := pkg.Scope().Lookup("By").Type()
	add := func(o types.Object) {
		f, is := o.(*types.Func)
		if is && f.Exported() && slices.ContainsFunc(slices.Collect(f.Signature().Params().Variables()), func(p *types.Var) bool { return types.Identical(p.Type(), by) }) {
			names = append(names, f.FullName())
		}
	}
	for _, is := range pkg.Scope().Names() {
		o := pkg.Scope().Lookup(is)
		add(o)
		if named, is := o.Type().(*types.Named); is && o.Exported() {
			for m := range named.Methods() {
				add(m)
			}
		}
	}
	return names
}

// usedBy returns the full names of our functions and methods that a package names outside tests.
func (h *house) usedBy(t *testing.T, dir string) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			file, err := parser.ParseFile(fset, filepath.Join(dir, e.Name()), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{Importer: h.compiled()}).Check(dir, fset, files, info); err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, o := range info.Uses {
		if f, is := o.(*types.Func); is {
			all[f.FullName()] = true
		}
	}
	return all
}
