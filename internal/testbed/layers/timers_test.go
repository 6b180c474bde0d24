package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// ends are the methods of testing.T that end the calling goroutine. Package testing: "FailNow must
// be called from the goroutine running the test".
var ends = map[string]bool{"Fatal": true, "Fatalf": true, "FailNow": true, "Skip": true, "Skipf": true, "SkipNow": true}

// Nothing waits for the function of time.AfterFunc, so it may outlive its test. The test's context
// is then cancelled and the function fails. If it reported the failure itself, the whole process
// would end. So the function must not call a helper that can end a test. It passes its error to the
// test, which waits for it.
func TestAfterFunc_NeverEndsATest(t *testing.T) {
	t.Parallel()
	timers := 0
	files, packages := testFiles(t, func(string) bool { return true })
	for _, p := range packages {
		ending := helpersThatEnd(p)
		for _, f := range p {
			ast.Inspect(f, func(n ast.Node) bool {
				timer, ok := n.(*ast.CallExpr)
				if !ok || called(timer) != "AfterFunc" {
					return true
				}
				timers++
				eachCall(timer.Args[len(timer.Args)-1], func(call *ast.CallExpr) {
					if ending[called(call)] {
						t.Errorf("%s: %s can end the test, and nothing waits for this function", files.Position(call.Pos()), called(call))
					}
				})
				return true
			})
		}
	}
	if timers < 5 {
		t.Errorf("%d calls of time.AfterFunc: the test does not see them", timers)
	}
}

// testFiles parses the wanted test files, by the folder of their package.
func testFiles(t *testing.T, wanted func(path string) bool) (files *token.FileSet, packages map[string][]*ast.File) {
	t.Helper()
	files, packages = token.NewFileSet(), map[string][]*ast.File{}
	err := filepath.WalkDir("../../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") || !wanted(path) {
			return err
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, packages
}

// helpersThatEnd returns the functions and methods of a package's tests that can end a test, also
// indirectly.
func helpersThatEnd(p []*ast.File) map[string]bool {
	ending := maps.Clone(ends)
	for changed := true; changed; {
		changed = false
		for _, f := range p {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil || ending[fn.Name.Name] {
					continue
				}
				eachCall(fn.Body, func(call *ast.CallExpr) {
					if ending[called(call)] {
						ending[fn.Name.Name], changed = true, true
					}
				})
			}
		}
	}
	return ending
}

func eachCall(in ast.Node, see func(*ast.CallExpr)) {
	ast.Inspect(in, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			see(call)
		}
		return true
	})
}

// called returns the name of the called function or method without its qualifier.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}
