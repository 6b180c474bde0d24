package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// timed are the gate's test functions that may compare clock readings, with the reason.
var timed = map[string]string{
	"transport/internal/heart.extend":                                     "plays a broker whose leases end",
	"job.TestRunners_LimitReachesHandlers":                                "a handler must not end before its limit",
	"job.TestWake_InVainIsRare":                                           "tells notifications of one announcement from those of the next",
	"transport/pawlnats.TestReceive_DeliveryFields":                       "a time of today, and not of 1970",
	"transport/pawlsqs/sqstest.TestReceive_SystemAttributesOnRequestOnly": "a time of today, and not of 1970",
	"transport/pawlsqs/sqstest.took":                                      "is called in bubbles",
	"transport/transporttest.take":                                        "plays a broker that keeps messages back",
}

// The gate's tests run in parallel, on machines that stall for seconds, so they cannot check an
// upper bound on a duration. They assert the cause instead: a counter, a row, an event, a setting,
// or another measurement of the same run. They wait with package patience, which counts polls. Code
// that uses only Go's timers runs in testing/synctest, where the test controls the time.
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

// bubblesOf returns the functions that run a function in a bubble of testing/synctest:
// synctest.Test and the package's helpers that call it, also indirectly.
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

// callee returns the called function, with its package if given: f, p.f.
func callee(call *ast.CallExpr) string {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		if p, ok := s.X.(*ast.Ident); ok {
			return p.Name + "." + s.Sel.Name
		}
	}
	return called(call)
}

// clockBounds returns the upper bounds on durations and the loops until a deadline in a
// declaration, except those in bubbles.
func clockBounds(in ast.Node, bubbles map[string]bool) (found []ast.Node) {
	elapsed := map[string]bool{} // variables that contain a measured duration
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

// measures reports whether an expression is a measured duration: time.Since, or a variable that
// contains it.
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

// readsClock reports whether a call compares a time with now: time.Now().After(x),
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

// slept are the gate's test functions that may sleep, with the reason.
var slept = map[string]string{
	"consumer.Example":                               "shows readers, who have no package patience, how to wait",
	"transport/pawlsqs.chaoticGroups":                "is called in bubbles",
	"transport/pawlsqs.stopDuringPoll":               "is called in bubbles",
	"transport/pawlsqs/sqstest.TestFIFO_AttemptEnds": "is called in bubbles",
	"transport/pawlsqs/sqstest.after":                "is called in bubbles",
}

// sleeps are the functions of Go's time that wait or start a timer.
var sleeps = []string{"time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick"}

// A sleep in a test hides its purpose.
//
// A sleep until something is probably true fails on a stall. Use patience.Until, or patience.Poll
// in a handler. A sleep before a check that something did not happen checks only once. Use
// patience.Watch, which checks repeatedly. Use patience.Elapse for work that takes time. Sleeps are
// free in bubbles of testing/synctest.
func TestDurations_NoTestSleeps(t *testing.T) {
	t.Parallel()
	gateCalls(t, slept, "name what this waits for, with package patience", func(call *ast.CallExpr) bool {
		return slices.Contains(sleeps, callee(call))
	})
}

// fetched are the gate's test functions that may contact other machines, with the reason.
var fetched = map[string]string{}

// The gate's tests contact no other machine, because its failure would fail them. Tests that fetch
// belong to the proof. If servers are not installed, internal/testbed/postgres and
// internal/testbed/brokers (NATS) fetch them once.
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

// asking are functions that contact the machine in their arguments.
var asking = []string{"http.Get", "http.Head", "http.Post", "http.PostForm", "http.NewRequest", "http.NewRequestWithContext",
	"net.Dial", "net.DialTimeout", "net.LookupHost", "net.LookupIP", "net.LookupAddr", "tls.Dial"}

// fetching are programs and go subcommands that fetch.
var fetching = []string{"apk", "apt", "apt-get", "brew", "curl", "dnf", "docker", "npm", "npx", "pip", "pip3", "podman", "wget", "yarn", "yum",
	"go get", "go install", "go mod download", "go mod tidy"}

// fetches reports whether a call contacts another machine, judging by its literal arguments.
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

// elsewhere reports whether a text is the address of another machine. Names without a dot and the
// names of RFC 2606 are not.
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

// gateCalls refuses certain calls in the gate's tests outside bubbles. Every listed exception must
// be in use.
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

// nameOf returns the folder of a declaration followed by its function's name.
func nameOf(dir string, d ast.Decl) string {
	name := strings.TrimPrefix(filepath.ToSlash(dir), "../../../") + "."
	if fn, ok := d.(*ast.FuncDecl); ok {
		name += fn.Name.Name
	}
	return name
}

// pg_stat_activity hides wait_event for a moment, once a second, so a test that asks it may see no
// wait where there is one.
func TestWaits_AreSeenByTheirLocks(t *testing.T) {
	t.Parallel()
	hidden := regexp.MustCompile(`wait_event` + `_type|wait_event` + ` = 'advisory'`)
	files, packages := testFiles(t, func(string) bool { return true })
	for _, p := range packages {
		for _, f := range p {
			ast.Inspect(f, func(n ast.Node) bool {
				if text, is := n.(*ast.BasicLit); is && hidden.MatchString(text.Value) {
					t.Errorf("%s: wait with patience.Blocked", files.Position(text.Pos()))
				}
				return true
			})
		}
	}
}
