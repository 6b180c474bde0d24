package vet

import (
	"go/ast"
	"go/token"
	"reflect"
	"regexp"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/buildssa"
)

// patterns is the page that shows the right way for each mistake.
const patterns = "https://github.com/pawl-go/pawl/blob/main/docs/guides/patterns.md#"

// Analyzers returns the six analyzers.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{ackBeforeCommit, markApart, callInTx, swallowedSQL, keyWithoutHash, selectThenAct}
}

// newAnalyzer makes an analyzer that looks at every function of a package. Its reports end with the
// page's anchor.
func newAnalyzer(name, anchor, doc string, check func(*reporter, *program)) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: name, Doc: doc, URL: patterns + anchor,
		Requires: []*analysis.Analyzer{calls},
		Run: func(pass *analysis.Pass) (any, error) {
			p := pass.ResultOf[calls].(*program)
			if p != nil {
				check(&reporter{pass: pass, anchor: anchor, allowed: allowances(pass), seen: map[token.Pos]bool{}}, p)
			}
			return nil, nil
		},
	}
}

// calls collects the calls of every function once, for all analyzers.
var calls = &analysis.Analyzer{
	Name: "pawlcalls", Doc: "collect the calls to databases and brokers",
	Requires:   []*analysis.Analyzer{buildssa.Analyzer},
	ResultType: reflect.TypeFor[*program](),
	Run: func(pass *analysis.Pass) (any, error) {
		return newProgram(pass, pass.ResultOf[buildssa.Analyzer].(*buildssa.SSA)), nil
	},
}

// A reporter reports each position once.
type reporter struct {
	pass    *analysis.Pass
	anchor  string
	allowed map[line]allowance
	seen    map[token.Pos]bool
}

func (r *reporter) report(pos token.Pos, what string) {
	if !pos.IsValid() || r.seen[pos] {
		return
	}
	r.seen[pos] = true
	at := r.pass.Fset.Position(pos)
	for _, l := range []line{{at.Filename, at.Line}, {at.Filename, at.Line - 1}} {
		a, is := r.allowed[l]
		if !is || a.name != r.pass.Analyzer.Name {
			continue
		}
		if a.reason {
			return
		}
		what += " (the comment that allows it needs a reason)"
	}
	r.pass.Report(analysis.Diagnostic{Pos: pos, Category: r.anchor, URL: patterns + r.anchor, Message: what + ". See " + patterns + r.anchor})
}

type line struct {
	file string
	line int
}

// An allowance is a comment //pawl:allow NAME REASON, on the reported line or the line above.
type allowance struct {
	name   string
	reason bool
}

var allow = regexp.MustCompile(`^//pawl:allow[ \t]+(\w+)[:,]?[ \t]*(.*)$`)

func allowances(pass *analysis.Pass) map[line]allowance {
	all := map[line]allowance{}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if m := allow.FindStringSubmatch(comment.Text); m != nil {
					at := pass.Fset.Position(comment.Pos())
					reason, _, _ := strings.Cut(m[2], "//")
					all[line{at.Filename, at.Line}] = allowance{name: m[1], reason: strings.TrimSpace(reason) != ""}
				}
			}
		}
	}
	return all
}

// isTest reports whether a file is a test. Tests look at a transaction from outside, ignore errors
// and acknowledge early on purpose.
func isTest(fset *token.FileSet, file *ast.File) bool {
	return strings.HasSuffix(fset.Position(file.Package).Filename, "_test.go")
}
