package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The page that says of each function of the user what a panic costs, and the test below that looks
// for calls which would end the process, find these functions by types: fields and parameters that
// are functions, named function types, interfaces, and fields of foreign interfaces.

// A typed package is one of ours, read from source.
type typed struct {
	name  string // as in the plan
	fset  *token.FileSet
	files []*ast.File
	pkg   *gotypes.Package
	info  *gotypes.Info
}

// public reports whether users import the package.
func (p *typed) public() bool { return public(p.pkg.Path()) }

func public(path string) bool {
	name, ours := ourPackage(path)
	return ours && !strings.Contains("/"+name+"/", "/internal/") && !slices.Contains(forTests, name) && name != "bench" && !strings.HasPrefix(name, "examples") &&
		!strings.HasPrefix(name, "cmd/") && !strings.HasPrefix(name, "proof")
}

// forTests are packages whose callers are tests: a panic in a function that they are given fails
// the test, as everywhere in package testing.
var forTests = []string{"pawltest", "transport/transporttest", "transport/pawlsqs/sqstest", "transport/pawlsqs/sqstest/conformance"}

// atWork are the internal packages that work in the process of a user.
var atWork = []string{"internal/catalog", "internal/conns", "internal/contract", "internal/delivery",
	"internal/engine", "internal/kick", "internal/pace", "internal/progress", "internal/rollup", "internal/solo",
	"internal/sqldriver", "internal/txn", "internal/watched", "observe/internal/metrics",
	"transport/internal/adapter", "transport/internal/heart"}

var loadTyped = sync.OnceValues(func() ([]*typed, error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return nil, err
	}
	goList := func(args ...string) ([]byte, error) {
		list := exec.Command("go", append([]string{"list"}, args...)...)
		list.Dir, list.Stderr = root, os.Stderr
		return list.Output()
	}
	var names []string
	for _, room := range plan {
		if path := strings.TrimSuffix(module+"/"+room.pkg, "/."); public(path) || slices.Contains(atWork, room.pkg) {
			names = append(names, path)
		}
	}
	text, err := goList(append([]string{"-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles"}, names...)...)
	if err != nil {
		return nil, err
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	exports, ours := map[string]string{}, []listed(nil)
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[l.ImportPath] = l.Export
		if slices.Contains(names, l.ImportPath) {
			ours = append(ours, l)
		}
	}
	fset := token.NewFileSet()
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var all []*typed
	for _, l := range ours {
		p := &typed{fset: fset, info: &gotypes.Info{Types: map[ast.Expr]gotypes.TypeAndValue{}, Defs: map[*ast.Ident]gotypes.Object{}, Uses: map[*ast.Ident]gotypes.Object{},
			Selections: map[*ast.SelectorExpr]*gotypes.Selection{}}}
		p.name, _ = ourPackage(l.ImportPath)
		for _, file := range l.GoFiles {
			parsed, err := parser.ParseFile(fset, filepath.Join(l.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			p.files = append(p.files, parsed)
		}
		if p.pkg, err = (&gotypes.Config{Importer: compiled}).Check(l.ImportPath, fset, p.files, p.info); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
})

func typedPackages(t *testing.T) []*typed {
	t.Helper()
	all, err := loadTyped()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 40 {
		t.Fatalf("found only %d packages", len(all))
	}
	return all
}

func isFunc(t gotypes.Type) bool {
	_, is := t.Underlying().(*gotypes.Signature)
	return is
}

// named is the declared type of t, or of what t points to; nil if it has no name.
func named(t gotypes.Type) *gotypes.Named {
	if p, is := gotypes.Unalias(t).(*gotypes.Pointer); is {
		t = p.Elem()
	}
	n, _ := gotypes.Unalias(t).(*gotypes.Named)
	return n
}

// byUser reports whether an interface is for users to implement: it is exported, and has no members
// that are not.
func byUser(n *gotypes.Named) bool {
	i, is := n.Underlying().(*gotypes.Interface)
	if !is || n.Obj().Pkg() == nil || !n.Obj().Exported() || !public(n.Obj().Pkg().Path()) {
		return false
	}
	for m := range i.Methods() {
		if !m.Exported() {
			return false
		}
	}
	return i.NumMethods() > 0
}

// foreign reports whether a field takes something of others that Pawl calls: an interface of
// another module or of the standard library, or one of the two structs that call functions of the
// user.
func foreign(t gotypes.Type) bool {
	n := named(t)
	if n == nil || n.Obj().Pkg() == nil {
		return false
	}
	switch name := n.Obj().Pkg().Path() + "." + n.Obj().Name(); name {
	case "log/slog.Logger", "net/http.Client":
		return true
	case "context.Context":
		return false
	}
	_, ours := ourPackage(n.Obj().Pkg().Path())
	return !ours && gotypes.IsInterface(n) && n.Obj().Name() != "Tx" // which Pawl lends
}

// callbacks returns the names of the functions of the user that a package takes: Config.Key,
// HandleTx, Middleware, Source.Receive.
func callbacks(pkg *gotypes.Package) (all []string) {
	takes := func(name string, s *gotypes.Signature) {
		for p := range s.Params().Variables() {
			if t := p.Type(); named(t) == nil && holdsFunc(t) {
				all = append(all, name)
				return
			}
		}
	}
	for _, name := range pkg.Scope().Names() {
		o := pkg.Scope().Lookup(name)
		if f, is := o.(*gotypes.Func); is && o.Exported() {
			takes(name, f.Signature())
		}
		declared, is := o.(*gotypes.TypeName)
		if !is || !o.Exported() || declared.IsAlias() {
			continue
		}
		n := named(declared.Type())
		switch under := n.Underlying().(type) {
		case *gotypes.Signature:
			all = append(all, name)
		case *gotypes.Struct:
			for f := range under.Fields() {
				if f.Exported() && (holdsFunc(f.Type()) || foreign(f.Type())) {
					all = append(all, name+"."+f.Name())
				}
			}
		case *gotypes.Interface:
			if byUser(n) {
				for m := range under.ExplicitMethods() {
					all = append(all, name+"."+m.Name())
				}
			}
			continue
		}
		for m := range n.Methods() {
			if m.Exported() {
				takes(name+"."+m.Name(), m.Signature())
			}
		}
	}
	return all
}

// holdsFunc reports whether a type is a function, or a map or slice of functions that have no named
// type.
func holdsFunc(t gotypes.Type) bool {
	switch u := t.(type) {
	case *gotypes.Map:
		return named(u.Elem()) == nil && isFunc(u.Elem())
	case *gotypes.Slice:
		return named(u.Elem()) == nil && isFunc(u.Elem())
	}
	return isFunc(t)
}

// The page has a row for each function of the user that Pawl calls, and no other row. A row that
// names an interface is about all its methods.
func TestCallbacks_HaveTheirRow(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/reference/callbacks.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{} // whether something is of that name
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || strings.HasPrefix(strings.TrimSpace(cells[1]), "--") {
			continue
		}
		if cells := len(cells) - 2; cells != 4 {
			t.Errorf("a row has %d cells, not 4: %s", cells, line)
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			if _, twice := rows[name[1]]; twice {
				t.Errorf("%s has two rows", name[1])
			}
			rows[name[1]] = false
		}
	}
	for _, p := range typedPackages(t) {
		if !p.public() {
			continue
		}
		for _, is := range callbacks(p.pkg) {
			name := p.pkg.Name() + "." + is
			parent := name[:strings.LastIndexByte(name, '.')]
			_, own := rows[name]
			_, whole := rows[parent]
			switch {
			case own:
				rows[name] = true
			case whole:
				rows[parent] = true
			default:
				t.Errorf("%s is a function of the user without a row in docs/reference/callbacks.md: when is it called, and what does a panic cost?", name)
			}
		}
	}
	for name, is := range rows {
		if !is {
			t.Errorf("docs/reference/callbacks.md has a row for %s, which is no function of the user", name)
		}
	}
}

// guards call what they are given such that neither a panic nor an exit of the goroutine leaves
// them.
var guards = map[string]bool{
	"callback.Do": true, "callback.Get": true, "callback.Here": true,
	"txn.Run": true, "txn.Safely": true, "txn.Here": true, "txn.Guard": true, "txn.Lend": true,
	"command.guard": true, "job.lend": true, // a method of an interface, and a variable, which are one of those
}

// An allowed call is not guarded.
type allowed struct{ file, call, because string }

// Reasons of several calls.
const (
	yourCall = "it is called in your call of the exported function, on your goroutine, and its panic returns to you"
	seam     = "it is in a method of a Source or a Sink, which the consumer and the relay call behind a guard"
	wrapped  = "what is made here wraps a handler, and is called where handlers are"
)

// bare are the calls that may stand without a guard, with the reason.
var bare = []allowed{
	{"command/httpkey/json.go", "fn", wrapped},
	{"job/handler.go", "around", wrapped},
	{"job/then.go", "commit", wrapped},
	{"observe/otelpawl/tracing.go", "t.ofDeliveries", wrapped},
	{"observe/otelpawl/tracing.go", "messaging", wrapped},
	{"observe/otelpawl/http.go", "next.ServeHTTP", "net/http calls it, and recovers"},
	{"observe/otelpawl/sink.go", "c.carrier.Carries", seam},
	{"observe/otelpawl/sink.go", "s.next.Publish", seam},
	{"observe/otelpawl/sink.go", "s.log.PublishBatch", seam},
	{"observe/otelpawl/sink.go", "s.start", seam},
	{"observe/internal/metrics/scopes.go", "s.of", "it is in Hooks.OnEvent"},
	{"dashboard/assets.go", "files.ServeHTTP", "it is net/http's own"},
	{"consumer/stored_attempt.go", "a.try.end", "end hands it to Guard"},
	{"consumer/consumer.go", "cfg.complete", yourCall},
	{"consumer/forms.go", "h.call", yourCall},
	{"consumer/forms_sql.go", "h.call", yourCall},
	{"job/define.go", "d.defaults.Key", yourCall},
	{"job/define.go", "d.defaults.Lane", yourCall},
	{"job/define.go", "d.Request", yourCall},
	{"migrate/migrate.go", "locked", yourCall},
	{"ops/job_bulk.go", "bulk{…}.run", yourCall},
	{"ops/purge.go", "r.batches", yourCall},
	{"schedule/plan.go", "p.next", yourCall},
	{"schedule/schedule.go", "s.first", yourCall},
	{"service/main.go", "run", "it is main"},
	{"step/run.go", "newTaking", yourCall},
	{"step/run.go", "t.take", yourCall},
	{"transport/pawlsqs/receive.go", "s.pollOnce", seam},
	{"transport/pawlsqs/receive.go", "s.giveBack", seam},
	{"transport/pawlsqs/settle.go", "s.delete", seam},
	{"transport/pawlsqs/settle.go", "s.release", seam},
	{"transport/pawlsqs/sink.go", "s.send", seam},
	{"transport/pawlsqs/send.go", "resolve", yourCall},
	{"transport/pawlsqs/send.go", "s.sendBatch", yourCall},
	{"transport/pawlsqs/sink.go", "resolve", yourCall},
	{"transport/pawlsqs/source.go", "resolve", yourCall},
	{"transport/pawlsqs/source.go", "s.client.GetQueueAttributes", yourCall},
}

// No function of the user is called where its panic would end the process.
func TestCallbacks_AreCalledBehindAGuard(t *testing.T) {
	t.Parallel()
	used := map[allowed]bool{}
	for _, p := range typedPackages(t) {
		for _, c := range p.bareCalls() {
			at := slices.IndexFunc(bare, func(b allowed) bool { return b.file == c.file && b.call == c.call })
			if at < 0 {
				t.Errorf("%s:%d calls %s, which is a function of the user or calls one, without a guard: see internal/callback", c.file, c.line, c.call)
				continue
			}
			used[bare[at]] = true
		}
	}
	for _, b := range bare {
		if !used[b] {
			t.Errorf("the list of calls without a guard names %s in %s, which is none", b.call, b.file)
		}
	}
}

// A bareCall is a call of a function of the user whose panic would leave what we call behind
// guards.
type bareCall struct {
	file, call string
	line       int
}

// theirs is what of a package is, or calls without a guard, functions of the user: parameters,
// variables, fields, types, declared functions and function literals. A call of one of them is a
// call of the user's function.
type theirs struct {
	*typed
	objects  map[gotypes.Object]bool
	literals map[*ast.FuncLit]bool
}

// bareCalls returns the calls of functions of the user that nothing guards: neither where they
// stand, nor where what they stand in is called.
func (p *typed) bareCalls() (all []bareCall) {
	t := &theirs{p, map[gotypes.Object]bool{}, map[*ast.FuncLit]bool{}}
	t.begin()
	for known := -1; known != len(t.objects)+len(t.literals); {
		known = len(t.objects) + len(t.literals)
		all = nil
		for _, file := range p.files {
			var above []ast.Node
			ast.Inspect(file, func(n ast.Node) bool {
				if n == nil {
					above = above[:len(above)-1]
					return true
				}
				above = append(above, n)
				t.follow(n)
				if call, is := n.(*ast.CallExpr); is && t.calls(call) && !t.absorbed(above) {
					at := p.fset.Position(call.Pos())
					all = append(all, bareCall{p.name + "/" + filepath.Base(at.Filename), gotypes.ExprString(call.Fun), at.Line})
				}
				return true
			})
		}
	}
	return all
}

// begin takes the parameters of exported functions, through which users hand in their own.
func (t *theirs) begin() {
	for _, file := range t.files {
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || !t.public() || !f.Name.IsExported() || f.Recv != nil && !token.IsExported(receiver(f)) {
				continue
			}
			for v := range t.info.Defs[f.Name].(*gotypes.Func).Signature().Params().Variables() {
				if isFunc(v.Type()) {
					t.objects[v] = true
				}
			}
		}
	}
}

// absorbed reports whether a call, the innermost node, is behind a guard, or is left to those who
// call the function that it stands in.
func (t *theirs) absorbed(above []ast.Node) bool {
	for i := len(above) - 1; i > 0; i-- {
		switch n := above[i].(type) {
		case *ast.GoStmt:
			return false
		case *ast.FuncLit:
			if end, known := t.literal(n, above[i-1]); known {
				return end
			}
		case *ast.FuncDecl:
			f := t.info.Defs[n.Name].(*gotypes.Func)
			if t.implements(f) {
				return true
			}
			t.objects[f] = true
			return !n.Name.IsExported()
		}
	}
	return false
}

// literal says whether a function literal that calls functions of the user absorbs that: it is
// given to a guard, or kept and called elsewhere. If it is called where it stands, that is not
// known yet.
func (t *theirs) literal(n *ast.FuncLit, parent ast.Node) (absorbed, known bool) {
	switch parent := parent.(type) {
	case *ast.CallExpr:
		switch callee := t.callee(parent); {
		case parent.Fun == n:
			return false, false
		case guards[callee]:
			return true, true
		case t.info.Types[parent.Fun].IsType():
			return false, callee == "http.HandlerFunc"
		case callee == "time.AfterFunc" || callee == "context.AfterFunc" || callee == "sync.Go":
			return false, true
		default:
			switch f := t.function(parent); {
			case f == nil, f.Pkg() == t.pkg:
			case public(f.Pkg().Path()):
				return true, true // a function of the user there, and looked at there
			default:
				return false, false // of another package, which calls it at once
			}
		}
	case *ast.ReturnStmt:
		return false, true
	}
	t.literals[n] = true
	return true, true
}

// implements reports whether a method is one of an interface that users implement too, so that each
// call of it is looked at.
func (t *theirs) implements(f *gotypes.Func) bool {
	recv := f.Signature().Recv()
	if recv == nil {
		return false
	}
	for _, pkg := range append(t.pkg.Imports(), t.pkg) {
		for _, name := range pkg.Scope().Names() {
			n := named(pkg.Scope().Lookup(name).Type())
			if n == nil || n.Obj().Name() != "KeyFrom" && n.Obj().Name() != "RoundTripper" || !lookedAt(n) {
				continue
			}
			i := n.Underlying().(*gotypes.Interface)
			for m := range i.Methods() {
				if m.Name() == f.Name() && (gotypes.Implements(recv.Type(), i) || gotypes.Implements(gotypes.NewPointer(recv.Type()), i)) {
					return true
				}
			}
		}
	}
	return false
}

// lookedAt reports whether the methods of an interface count as functions of the user.
func lookedAt(n *gotypes.Named) bool {
	if n.Obj().Pkg() == nil {
		return false
	}
	name := n.Obj().Pkg().Name() + "." + n.Obj().Name()
	return byUser(n) && !slices.Contains(ofPgx, name) || name == "http.Handler" || name == "http.RoundTripper"
}

// ofPgx are interfaces that pgx's types satisfy.
var ofPgx = []string{"pawl.DB", "pawl.Tx", "pawl.Queryer", "migrate.Querier"}

// callee names what is called: package.name.
func (p *typed) callee(call *ast.CallExpr) string {
	if f := p.object(call.Fun); f != nil && f.Pkg() != nil {
		return f.Pkg().Name() + "." + f.Name()
	}
	return ""
}

func (p *typed) function(call *ast.CallExpr) *gotypes.Func {
	f, _ := p.object(call.Fun).(*gotypes.Func)
	return f
}

// object is what an expression names: a variable, a field, a parameter, a function.
func (p *typed) object(e ast.Expr) gotypes.Object {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident:
		if o := p.info.Uses[x]; o != nil {
			return origin(o)
		}
		return p.info.Defs[x]
	case *ast.SelectorExpr:
		if s := p.info.Selections[x]; s != nil {
			return origin(s.Obj())
		}
		return p.info.Uses[x.Sel]
	case *ast.IndexExpr: // a generic function with its types, or one of several
		return p.object(x.X)
	case *ast.IndexListExpr:
		return p.object(x.X)
	}
	return nil
}

// origin is the declaration of what belongs to a generic type or function.
func origin(o gotypes.Object) gotypes.Object {
	switch o := o.(type) {
	case *gotypes.Var:
		return o.Origin()
	case *gotypes.Func:
		return o.Origin()
	}
	return o
}

// calls reports whether a call is one of a function of the user.
func (t *theirs) calls(call *ast.CallExpr) bool {
	if v := t.info.Types[call.Fun]; v.IsType() || v.IsBuiltin() {
		return false
	}
	f := t.function(call)
	if f == nil {
		return t.are(call.Fun)
	}
	recv := f.Signature().Recv()
	if recv == nil || !gotypes.IsInterface(recv.Type()) {
		return t.objects[f]
	}
	n := named(recv.Type())
	return n != nil && (lookedAt(n) || t.hidden(f))
}

// hidden reports whether a method of an interface that only this package implements calls functions
// of the user in one of its implementations.
func (t *theirs) hidden(f *gotypes.Func) bool {
	for o := range t.objects {
		if m, is := o.(*gotypes.Func); is && m.Name() == f.Name() && !m.Exported() && m.Signature().Recv() != nil && f.Pkg() == t.pkg {
			return true
		}
	}
	return false
}

// are reports whether the value of an expression is a function of the user, or one that calls it.
func (t *theirs) are(e ast.Expr) bool {
	e = ast.Unparen(e)
	of := t.info.Types[e].Type
	if of == nil || !isFunc(of) {
		return false
	}
	switch x := e.(type) {
	case *ast.FuncLit:
		return t.literals[x]
	case *ast.CallExpr:
		return t.info.Types[x.Fun].IsType() && len(x.Args) == 1 && t.are(x.Args[0])
	}
	if n := named(of); n != nil && n.Obj().Pkg() != nil && (t.objects[n.Obj()] || n.Obj().Exported() && public(n.Obj().Pkg().Path())) {
		return true
	}
	o := t.object(e)
	if v, is := o.(*gotypes.Var); is && v.IsField() && v.Exported() && v.Pkg() != nil {
		_, ours := ourPackage(v.Pkg().Path())
		return public(v.Pkg().Path()) || !ours && strings.Contains(strings.Split(v.Pkg().Path(), "/")[0], ".")
	}
	return o != nil && t.objects[o]
}

// follow takes functions of the user along where a node hands them on.
func (t *theirs) follow(n ast.Node) {
	give := func(to gotypes.Object, value ast.Expr) {
		if to != nil && t.are(value) {
			t.objects[to] = true
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, value := range n.Rhs {
			if len(n.Lhs) == len(n.Rhs) {
				give(t.object(n.Lhs[i]), value)
			}
		}
	case *ast.CompositeLit:
		s, is := t.info.Types[n].Type.Underlying().(*gotypes.Struct)
		for i, e := range n.Elts {
			if kv, keyed := e.(*ast.KeyValueExpr); keyed && is {
				give(t.object(kv.Key), kv.Value)
			} else if is {
				give(origin(s.Field(i)), e)
			}
		}
	case *ast.CallExpr:
		t.arguments(n, give)
	}
}

// arguments follows functions into the parameters of declared functions of this package, and into
// types of it.
func (t *theirs) arguments(n *ast.CallExpr, give func(gotypes.Object, ast.Expr)) {
	if t.info.Types[n.Fun].IsType() && len(n.Args) == 1 {
		if to := named(t.info.Types[n.Fun].Type); to != nil && to.Obj().Pkg() == t.pkg {
			give(to.Obj(), n.Args[0])
		}
		return
	}
	f := t.function(n)
	if f == nil || f.Pkg() != t.pkg || guards[t.callee(n)] {
		return
	}
	params := f.Signature().Params()
	for i, arg := range n.Args {
		if i < params.Len() {
			give(params.At(i), arg)
		}
	}
}

// receiver is the name of the type that a method is declared for.
func receiver(f *ast.FuncDecl) string {
	e := f.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			panic(fmt.Sprintf("a receiver that is a %T", e))
		}
	}
}
