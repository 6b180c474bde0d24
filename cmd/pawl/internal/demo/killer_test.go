package demo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The demo kills at every named point of the pipeline; long handlers have their own. It uses no
// unknown point, because that would wait for killPatience and count as a random moment.
func TestPoints_AreThoseOfTheConsumer(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../../consumer/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of the consumer: %v", err)
	}
	found := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if point, ok := pointOf(n); ok && strings.HasPrefix(point, "consumer.") {
				found[point] = true
			}
			return true
		})
	}
	if want, got := slices.Sorted(maps.Keys(found)), slices.Sorted(slices.Values(points)); !slices.Equal(got, want) {
		t.Errorf("the demo kills at\n%q, the consumer has\n%q", got, want)
	}
}

// pointOf returns the name in a call of fault.At.
func pointOf(n ast.Node) (string, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return "", false
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || function.Sel.Name != "At" {
		return "", false
	}
	if of, ok := function.X.(*ast.Ident); !ok || of.Name != "fault" {
		return "", false
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	name, err := strconv.Unquote(literal.Value)
	return name, err == nil
}

// Each turn of the plan visits every point once and a random moment twice.
func TestPlan_VisitsEveryPoint(t *testing.T) {
	t.Parallel()
	turn := len(points) + 2
	plan := newGame(Options{Messages: 1, Duplicates: 1, Kills: 5 * turn, Seed: 7}, nil, nil, nil, nil).killer.plan
	for n := range 5 {
		visited := map[string]int{}
		for _, point := range plan[n*turn : (n+1)*turn] {
			visited[point]++
		}
		if len(visited) != len(points)+1 || visited[Randomly] != 2 {
			t.Errorf("turn %d: %v", n, visited)
		}
	}
}
