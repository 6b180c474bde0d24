package layers

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Count another tree, such as an older commit in another directory, with
//
//	go test ./internal/testbed/layers -run Pipeline -v -args -pipeline.dir=DIR \
//		-pipeline.files='0 consumer.go drain.go; 1 receive.go; …'
var (
	pipelineDir   = flag.String("pipeline.dir", "../../../consumer", "the package whose calls are counted")
	pipelineFiles = flag.String("pipeline.files", "", "the step of each file, instead of the plan")
	pipelineLeafs = flag.String("pipeline.leafs", "", "functions that count as leafs in any file, separated by spaces")
)

// maxClimbs bounds the climbing calls of the consumer.
const maxClimbs = 5

// steps are the steps of a delivery, in order. A file belongs to the step with which its name
// begins.
var steps = []string{"receive", "filter", "identify", "claim", "handle", "commit", "ack", "finish"}

// The roles of files of package consumer that are not steps.
const (
	line  = 0   // calls the steps in order
	leaf  = 100 // may be used by every step and calls none
	aside = -1  // another entry: stored deliveries and background work
)

var otherRoles = map[string]int{
	"consumer": line, "deliver": line, "drain": line,
	"doc": leaf, "config": leaf, "events": leaf, "forms": leaf, "middleware": leaf, "names": leaf,
	"retention": aside, "stored": aside,
}

// A delivery passes the steps of package consumer in one direction. A call climbs if it goes from a
// step to an earlier one, to the line or to another entry, or from a leaf to anything else. Each
// place in the source counts, also if it names a function without calling it. Only calls between
// files count.
func TestPipeline_RunsInOneDirection(t *testing.T) {
	t.Parallel()
	role := rolesOf(t)
	files, uses := parsedPackage(t, *pipelineDir)
	leafs, moves := strings.Fields(*pipelineLeafs), 0
	var climbs []string
	for from, uses := range uses {
		for _, u := range uses {
			a, b := role(from), role(u.to)
			if from == u.to || b == leaf || slices.Contains(leafs, u.name) {
				continue
			}
			moves++
			// consumer.go also starts the background work.
			if a == leaf || a > line && b < a || a == line && b == aside && from != "consumer.go" {
				climbs = append(climbs, fmt.Sprintf("%s: %s climbs from %s to %s, %s", u.at, u.from, from, u.to, u.name))
			}
		}
	}
	slices.Sort(climbs)
	t.Logf("%d files, %d moves between files, %d of them climb:\n%s", files, moves, len(climbs), strings.Join(climbs, "\n"))
	if len(climbs) > maxClimbs {
		t.Errorf("%d calls climb, %d may", len(climbs), maxClimbs)
	}
	if moves < 20 {
		t.Errorf("%d moves: the test does not see them", moves)
	}
}

// rolesOf returns a function that maps a file to its step.
func rolesOf(t *testing.T) func(file string) int {
	t.Helper()
	roles := map[string]int{}
	for _, group := range strings.Split(*pipelineFiles, ";") {
		words := strings.Fields(group)
		if len(words) == 0 {
			continue
		}
		n, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range words[1:] {
			roles[file] = n
		}
	}
	return func(file string) int {
		if n, there := roles[file]; there {
			return n
		}
		first, _, _ := strings.Cut(strings.TrimSuffix(file, ".go"), "_")
		if n := slices.Index(steps, first); n >= 0 {
			return n + 1
		}
		if n, there := otherRoles[first]; there {
			return n
		}
		t.Errorf("%s is no step and has no role: begin its name with its step, or give it a role here", file)
		return leaf
	}
}

// A use is a place that calls or names a function of the package.
type use struct{ from, to, name, at string }

// parsedPackage returns the places where each file uses functions declared in the package. It does
// not resolve imports, because imported code can call back only through a function that is named
// here.
func parsedPackage(t *testing.T, dir string) (n int, uses map[string][]use) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set, parsed := token.NewFileSet(), []*ast.File(nil)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	info := &gotypes.Info{Uses: map[*ast.Ident]gotypes.Object{}}
	config := gotypes.Config{Importer: noImports{}, Error: func(error) {}}
	// Always fails, because nothing is imported.
	pkg, _ := config.Check("consumer", set, parsed, info)
	declared, uses := map[string]bool{}, map[string][]use{}
	for _, f := range parsed {
		for _, d := range f.Decls {
			if fn, is := d.(*ast.FuncDecl); is {
				declared[fn.Name.Name] = true
			}
		}
	}
	base := func(p token.Pos) string { return filepath.Base(set.Position(p).Filename) }
	for _, f := range parsed {
		for _, d := range f.Decls {
			from := "a declaration"
			if fn, is := d.(*ast.FuncDecl); is {
				from = fn.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if s, is := n.(*ast.SelectorExpr); is && declared[s.Sel.Name] && !s.Sel.IsExported() && info.Uses[s.Sel] == nil && !ofImport(info, s.X) {
					t.Errorf("%s: cannot resolve %s", set.Position(s.Pos()), s.Sel.Name)
				}
				id, is := n.(*ast.Ident)
				if !is {
					return true
				}
				if fn, is := info.Uses[id].(*gotypes.Func); is && fn.Pkg() == pkg {
					uses[base(id.Pos())] = append(uses[base(id.Pos())], use{from, base(fn.Origin().Pos()), fn.Name(), set.Position(id.Pos()).String()})
				}
				return true
			})
		}
	}
	return len(parsed), uses
}

func ofImport(info *gotypes.Info, x ast.Expr) bool {
	id, is := x.(*ast.Ident)
	if !is {
		return false
	}
	_, is = info.Uses[id].(*gotypes.PkgName)
	return is
}

type noImports struct{}

func (noImports) Import(string) (*gotypes.Package, error) { return nil, errors.New("not imported") }
