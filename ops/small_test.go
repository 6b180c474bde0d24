package ops_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// mostTypes bounds how many types a reader of the documentation must learn.
const mostTypes = 45

// The package stays small: a new noun or result needs a good reason.
func TestPackage_ExportsFewTypes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			declared, is := d.(*ast.GenDecl)
			if !is || declared.Tok != token.TYPE {
				continue
			}
			for _, s := range declared.Specs {
				if spec := s.(*ast.TypeSpec); spec.Name.IsExported() {
					names = append(names, spec.Name.Name)
				}
			}
		}
	}
	if len(names) > mostTypes || len(names) < 30 {
		t.Errorf("%d exported types, want 30 to %d: %v", len(names), mostTypes, names)
	}
}
