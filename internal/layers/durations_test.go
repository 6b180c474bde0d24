package layers

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// timed are the functions of the gate's tests that may compare what the clock says, and why.
var timed = map[string]string{
	"internal/heart.extend":                                               "plays a broker whose leases end",
	"job.TestRunners_LimitReachesHandlers":                                "a handler must not end before its limit",
	"job.TestWake_InVainIsRare":                                           "tells notifications of one announcement from those of the next",
	"transport/pawlnats.TestReceive_TellsOfTheMessage":                    "a time of today, and not of 1970",
	"transport/pawlsqs/sqstest.TestReceive_SystemAttributesOnRequestOnly": "a time of today, and not of 1970",
	"transport/pawlsqs/sqstest.took":                                      "is called in bubbles",
	"transport/transporttest.Receive":                                     "plays a broker that waits for messages",
	"transport/transporttest.take":                                        "plays a broker that keeps messages back",
}

// A test of the gate runs beside others, on machines that stand still for seconds: an upper bound
// on a duration is no promise that it can check. It asserts the cause instead: a counter, a row, an
// event, a setting, or the same measured in the same run. To wait, it uses package patience, which
// counts polls. Timers of Go alone run in testing/synctest, where time is the test's own.
func TestDurations_AreNoPromises(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	files, packages := testFiles(t, func(path string) bool { return !strings.HasSuffix(path, "_proof_test.go") })
	for dir, p := range packages {
		bubbles := bubblesOf(p)
		for _, f := range p {
			for _, d := range f.Decls {
				name := strings.TrimPrefix(filepath.ToSlash(dir), "../../") + "."
				if fn, ok := d.(*ast.FuncDecl); ok {
					name += fn.Name.Name
				}
				for _, n := range clockBounds(d, bubbles) {
					seen[name] = true
					if timed[name] == "" {
						t.Errorf("%s: %s: a stall breaks this bound", files.Position(n.Pos()), name)
					}
				}
			}
		}
	}
	for name := range timed {
		if !seen[name] {
			t.Errorf("%s has no bound any more: take it from the list", name)
		}
	}
}

// bubblesOf names what runs a function in a bubble of testing/synctest: its Test, and the helpers
// of a package that call it.
func bubblesOf(p []*ast.File) map[string]bool {
	bubbles := map[string]bool{"synctest.Test": true}
	for _, f := range p {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && !strings.HasPrefix(fn.Name.Name, "Test") {
				eachCall(fn.Body, func(call *ast.CallExpr) {
					if callee(call) == "synctest.Test" {
						bubbles[fn.Name.Name] = true
					}
				})
			}
		}
	}
	return bubbles
}

// callee is the function that is called, with its package: f, p.f.
func callee(call *ast.CallExpr) string {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		if p, ok := s.X.(*ast.Ident); ok {
			return p.Name + "." + s.Sel.Name
		}
	}
	return called(call)
}

// clockBounds are the upper bounds on durations and the loops until a deadline in a declaration,
// but for those in bubbles.
func clockBounds(in ast.Node, bubbles map[string]bool) (found []ast.Node) {
	elapsed := map[string]bool{} // variables that hold how long something took
	ast.Inspect(in, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i := range a.Lhs {
				if v, ok := a.Lhs[i].(*ast.Ident); ok && measures(a.Rhs[i], nil) {
					elapsed[v.Name] = true
				}
			}
		}
		return true
	})
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if bubbles[callee(n)] {
				return false
			}
			if readsClock(n) {
				found = append(found, n)
			}
		case *ast.ForStmt:
			if n.Cond != nil && measures(n.Cond, elapsed) {
				found = append(found, n)
			}
		case *ast.BinaryExpr:
			switch n.Op {
			case token.GTR, token.GEQ:
				if measures(n.X, elapsed) {
					found = append(found, n)
				}
			case token.LSS, token.LEQ:
				if measures(n.Y, elapsed) {
					found = append(found, n)
				}
			case token.EQL, token.NEQ:
				if measures(n.X, elapsed) || measures(n.Y, elapsed) {
					found = append(found, n)
				}
			}
		}
		return true
	})
	return found
}

// measures reports whether an expression is how long something took: time.Since, or a variable that
// holds it.
func measures(e ast.Expr, elapsed map[string]bool) (yes bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			yes = yes || elapsed[n.Name]
		case *ast.CallExpr:
			yes = yes || callee(n) == "time.Since"
		}
		return true
	})
	return yes
}

// readsClock reports whether a call asks whether a moment has passed: time.Now().After(x),
// x.Before(time.Now()).
func readsClock(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "After" && s.Sel.Name != "Before" {
		return false
	}
	now := func(e ast.Expr) bool {
		c, ok := e.(*ast.CallExpr)
		return ok && callee(c) == "time.Now"
	}
	return now(s.X) || len(call.Args) == 1 && now(call.Args[0])
}
