package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// timed are the functions of the gate's tests that may compare what the clock says, and why.
var timed = map[string]string{
	"transport/internal/heart.extend":                                     "plays a broker whose leases end",
	"job.TestRunners_LimitReachesHandlers":                                "a handler must not end before its limit",
	"job.TestWake_InVainIsRare":                                           "tells notifications of one announcement from those of the next",
	"transport/pawlnats.TestReceive_TellsOfTheMessage":                    "a time of today, and not of 1970",
	"transport/pawlsqs/sqstest.TestReceive_SystemAttributesOnRequestOnly": "a time of today, and not of 1970",
	"transport/pawlsqs/sqstest.took":                                      "is called in bubbles",
	"transport/transporttest.take":                                        "plays a broker that keeps messages back",
}

// A test of the gate runs beside others, on machines that stand still for seconds: an upper bound
// on a duration is no promise that it can check. It asserts the cause instead: a counter, a row, an
// event, a setting, or the same measured in the same run. To wait, it uses package patience, which
// counts polls. Timers of Go alone run in testing/synctest, where time is the test's own.
func TestDurations_AreNoPromises(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	files, packages := testFiles(t, ofTheGate)
	for dir, p := range packages {
		bubbles := bubblesOf(p)
		for _, f := range p {
			for _, d := range f.Decls {
				name := nameOf(dir, d)
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
// of a package that call it, themselves or through others.
func bubblesOf(p []*ast.File) map[string]bool {
	bubbles := map[string]bool{"synctest.Test": true}
	for known := 0; known < len(bubbles); {
		known = len(bubbles)
		for _, f := range p {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && !strings.HasPrefix(fn.Name.Name, "Test") {
					eachCall(fn.Body, func(call *ast.CallExpr) {
						if bubbles[callee(call)] {
							bubbles[fn.Name.Name] = true
						}
					})
				}
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

// slept are the functions of the gate's tests that may sleep, and why.
var slept = map[string]string{
	"consumer.Example":                               "shows readers, who have no package patience, how to wait",
	"transport/pawlsqs.chaoticGroups":                "is called in bubbles",
	"transport/pawlsqs.stopDuringPoll":               "is called in bubbles",
	"transport/pawlsqs/sqstest.TestFIFO_AttemptEnds": "is called in bubbles",
	"transport/pawlsqs/sqstest.after":                "is called in bubbles",
}

// sleeps are the functions of Go's time that wait, or make something wait.
var sleeps = []string{"time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick"}

// A sleep in a test hides what it is for. If it waits until something is probably true, a stall
// breaks it: patience.Until waits for that very thing, and patience.Poll does in a handler. If it
// looks whether something happens that must not, it looks once: patience.Watch looks all the while.
// For work that takes time there is patience.Elapse. In bubbles of testing/synctest sleeps are
// free.
func TestDurations_NoTestSleeps(t *testing.T) {
	t.Parallel()
	gateCalls(t, slept, "name what this waits for, with package patience", func(call *ast.CallExpr) bool {
		return slices.Contains(sleeps, callee(call))
	})
}

// fetched are the functions of the gate's tests that may ask other machines, and why.
var fetched = map[string]string{}

// A test of the gate asks no other machine, whose silence would fail it. What fetches is a proof.
// The servers that tests need are fetched once if they are not installed: by internal/testbed/postgres, and
// NATS by internal/testbed/brokers.
func TestGate_FetchesNothing(t *testing.T) {
	t.Parallel()
	gateCalls(t, fetched, "a test of the gate fetches nothing", fetches)
	for code, want := range map[string]bool{
		`http.Get("https://go.dev/dl")`:                                  true,
		`http.NewRequestWithContext(ctx, "GET", "http://1.2.3.4/", nil)`: true,
		`net.Dial("tcp", "go.dev:443")`:                                  true,
		`exec.Command("npm", "install", "pg")`:                           true,
		`exec.CommandContext(ctx, "go", "install", "x@latest")`:          true,
		`exec.Command("go", "mod", "download")`:                          true,
		`http.Get("http://127.0.0.1:80/")`:                               false,
		`http.Get(server.URL + "/charges")`:                              false,
		`net.Dial("tcp", "localhost:1")`:                                 false,
		`http.NewRequest("GET", "http://no-such-host.invalid", nil)`:     false,
		`exec.Command("go", "build", "-o", binary, ".")`:                 false,
		`exec.Command("go", "mod", "edit", "-json")`:                     false,
	} {
		call, err := parser.ParseExpr(code)
		if err != nil {
			t.Fatal(err)
		}
		if fetches(call.(*ast.CallExpr)) != want {
			t.Errorf("%s: fetches %v, want %v", code, !want, want)
		}
	}
}

// asking are functions that ask the machine that an argument of theirs names.
var asking = []string{"http.Get", "http.Head", "http.Post", "http.PostForm", "http.NewRequest", "http.NewRequestWithContext",
	"net.Dial", "net.DialTimeout", "net.LookupHost", "net.LookupIP", "net.LookupAddr", "tls.Dial"}

// fetching are programs that fetch, and what the go command fetches with.
var fetching = []string{"apk", "apt", "apt-get", "brew", "curl", "dnf", "docker", "npm", "npx", "pip", "pip3", "podman", "wget", "yarn", "yum",
	"go get", "go install", "go mod download", "go mod tidy"}

// fetches reports whether a call asks another machine, as far as its literal arguments tell.
func fetches(call *ast.CallExpr) bool {
	var texts []string
	for _, arg := range call.Args {
		if literal, ok := arg.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, _ := strconv.Unquote(literal.Value)
			texts = append(texts, text)
		}
	}
	switch name := callee(call); {
	case name == "exec.Command", name == "exec.CommandContext":
		line := strings.Join(texts, " ") + " "
		return slices.ContainsFunc(fetching, func(program string) bool { return strings.HasPrefix(line, program+" ") })
	case slices.Contains(asking, name):
		return slices.ContainsFunc(texts, elsewhere)
	}
	return false
}

// elsewhere reports whether a text is the address of another machine. Names without a dot, and
// those of RFC 2606, are of none.
func elsewhere(text string) bool {
	host := text
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		host = u.Host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if ip := net.ParseIP(host); ip != nil {
		return !ip.IsLoopback()
	}
	_, top, dotted := strings.Cut(host, ".")
	return dotted && !slices.Contains([]string{"test", "invalid", "example", "localhost"}, top[strings.LastIndex(top, ".")+1:])
}

// gateCalls refuses some calls in the gate's tests outside bubbles. The list of exceptions must not
// be longer than it needs to be.
func gateCalls(t *testing.T, exceptions map[string]string, advice string, refused func(*ast.CallExpr) bool) {
	t.Helper()
	seen := map[string]bool{}
	files, packages := testFiles(t, ofTheGate)
	for dir, p := range packages {
		bubbles := bubblesOf(p)
		for _, f := range p {
			for _, d := range f.Decls {
				name := nameOf(dir, d)
				ast.Inspect(d, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if ok && refused(call) {
						seen[name] = true
						if exceptions[name] == "" {
							t.Errorf("%s: %s calls %s: %s", files.Position(n.Pos()), name, callee(call), advice)
						}
					}
					return !ok || !bubbles[callee(call)]
				})
			}
		}
	}
	for name := range exceptions {
		if !seen[name] {
			t.Errorf("%s needs no exception any more: take it from the list", name)
		}
	}
}

func ofTheGate(path string) bool { return !strings.HasSuffix(path, "_proof_test.go") }

// nameOf is the folder of a declaration with the name of its function.
func nameOf(dir string, d ast.Decl) string {
	name := strings.TrimPrefix(filepath.ToSlash(dir), "../../../") + "."
	if fn, ok := d.(*ast.FuncDecl); ok {
		name += fn.Name.Name
	}
	return name
}
