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

// To count another tree, such as an older commit in another directory:
//
//	go test ./internal/testbed/layers -run Pipeline -v -args -pipeline.dir=DIR -pipeline.files='0 consumer.go drain.go; 1 receive.go; …'
var (
	pipelineDir   = flag.String("pipeline.dir", "../../../consumer", "the package whose calls are counted")
	pipelineFiles = flag.String("pipeline.files", "", "the step of each file, instead of the plan")
	pipelineLeafs = flag.String("pipeline.leafs", "", "functions that are leafs whatever their file, separated by spaces")
)

// maxClimbs is how many calls of the consumer may climb.
const maxClimbs = 5

// steps are those of a delivery, in their order. A file belongs to the step that its name begins with.
var steps = []string{"receive", "identify", "claim", "handle", "commit", "ack", "finish"}

// What a file of package consumer is that is no step.
const (
	line  = 0   // it calls the steps in their order
	leaf  = 100 // what every step may use; it calls none
	aside = -1  // another way in: stored deliveries, and what runs beside the line
)

var otherRoles = map[string]int{
	"consumer": line, "deliver": line, "drain": line,
	"doc": leaf, "config": leaf, "events": leaf, "forms": leaf, "middleware": leaf, "names": leaf,
	"retention": aside, "stored": aside,
}

// A delivery goes through the steps of package consumer in one direction. A call climbs if it goes from a step to an earlier one, to the
// line or to another way in, or from a leaf to anything else. Each place in the source counts by itself, and so does a function that is
// named without being called. What counts is where the functions are declared: calls within a file do not.
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
			if a == leaf || a > line && b < a || a == line && b == aside && from != "consumer.go" { // which starts what runs aside
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

// rolesOf returns the step of a file.
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

// A use is one place at which a function of the package is called, or named.
type use struct{ from, to, name, at string }

// parsedPackage returns where each file uses functions that are declared in the package, also in others. Imports are not resolved: what
// they have cannot call back but through a function that is named here.
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
	pkg, _ := config.Check("consumer", set, parsed, info) // fails, as nothing is imported
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
					t.Errorf("%s: it cannot be told what %s is", set.Position(s.Pos()), s.Sel.Name)
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
