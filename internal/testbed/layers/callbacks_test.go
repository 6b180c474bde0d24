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

// User callbacks are found by types: fields and parameters that are functions, named function
// types, interfaces, and fields of foreign interfaces. One test compares them with the page that
// states the cost of a panic in each callback. The other looks for calls whose panic would end the
// process.

// A typed package is one of our packages, loaded from source.
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

// forTests are packages for tests. A panic in a callback fails the test, as in package testing.
var forTests = []string{"pawltest", "transport/transporttest", "transport/pawlsqs/sqstest", "transport/pawlsqs/sqstest/conformance"}

// atWork are the internal packages that run in a user's process.
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

// named returns the declared type of t or of its pointee, or nil if that has no name.
func named(t gotypes.Type) *gotypes.Named {
	if p, is := gotypes.Unalias(t).(*gotypes.Pointer); is {
		t = p.Elem()
	}
	n, _ := gotypes.Unalias(t).(*gotypes.Named)
	return n
}

// byUser reports whether users can implement an interface: it is exported and all its members are.
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

// foreign reports whether Pawl calls foreign code through a field. The field's type is an interface
// of another module or of the standard library, or one of the two structs that call user callbacks.
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
	return !ours && gotypes.IsInterface(n) && n.Obj().Name() != "Tx" // Pawl itself provides a Tx
}

// callbacks returns the names of the user callbacks of a package: Config.Key, HandleTx, Middleware,
// Source.Receive.
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

// holdsFunc reports whether a type is a function, or a map or slice of functions without a named
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

// The page has exactly one row for each user callback. A row that names an interface covers all its
// methods.
func TestCallbacks_HaveTheirRow(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/reference/callbacks.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{} // value: whether a callback has that name
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

// guards call a function so that neither its panic nor its exit of the goroutine leaves them.
var guards = map[string]bool{
	"callback.Do": true, "callback.Get": true, "callback.Here": true,
	"txn.Run": true, "txn.Safely": true, "txn.Here": true, "txn.Guard": true, "txn.Lend": true,
	// An interface's method and a variable, both of which are guards.
	"command.guard": true, "job.lend": true,
}

// An allowed call needs no guard.
type allowed struct{ file, call, because string }

// Reasons that several calls share.
const (
	yourCall = "it is called in your call of the exported function, on your goroutine, and its panic returns to you"
	seam     = "it is in a method of a Source or a Sink, which the consumer and the relay call behind a guard"
	wrapped  = "what is made here wraps a handler, and is called where handlers are"
)

// bare are the calls that need no guard, with the reason.
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
	{"transport/pawlsqs/sink.go", "sendAll", seam},
	{"transport/pawlsqs/send.go", "resolve", yourCall},
	{"transport/pawlsqs/send.go", "sendAll", yourCall},
	{"transport/pawlsqs/sink.go", "resolve", yourCall},
	{"transport/pawlsqs/source.go", "resolve", yourCall},
	{"transport/pawlsqs/source.go", "s.client.GetQueueAttributes", yourCall},
}

// No user callback is called where its panic would end the process.
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

// A bareCall is an unguarded call of a user callback.
type bareCall struct {
	file, call string
	line       int
}

// A theirs contains a package's user callbacks and the code that calls them without a guard:
// parameters, variables, fields, types, declared functions and function literals. A call of one of
// them counts as a call of the callback.
type theirs struct {
	*typed
	objects  map[gotypes.Object]bool
	literals map[*ast.FuncLit]bool
}

// bareCalls returns the calls of user callbacks that no guard surrounds, neither directly nor
// around the enclosing function's calls.
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

// begin adds the parameters of exported functions, through which users pass callbacks.
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

// absorbed reports whether a call, the innermost node, is behind a guard, or is checked at the
// callers of the enclosing function.
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

// literal reports whether a function literal absorbs the callbacks that it calls. It does if it is
// passed to a guard, or stored and called elsewhere. If it is called where it is written, known is
// false.
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
				return true, true // it is a user callback there and is checked there
			default:
				return false, false // another package that calls it immediately
			}
		}
	case *ast.ReturnStmt:
		return false, true
	}
	t.literals[n] = true
	return true, true
}

// implements reports whether a method implements an interface that users also implement, so that
// each call of it is checked.
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

// lookedAt reports whether the methods of an interface count as user callbacks.
func lookedAt(n *gotypes.Named) bool {
	if n.Obj().Pkg() == nil {
		return false
	}
	name := n.Obj().Pkg().Name() + "." + n.Obj().Name()
	return byUser(n) && !slices.Contains(ofPgx, name) || name == "http.Handler" || name == "http.RoundTripper"
}

// ofPgx are interfaces that pgx's types implement.
var ofPgx = []string{"pawl.DB", "pawl.Tx", "pawl.Queryer", "migrate.Querier"}

// callee returns the called function as package.name.
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

// object returns the variable, field, parameter or function that an expression names.
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
	case *ast.IndexExpr: // a generic function with its type arguments, or an element
		return p.object(x.X)
	case *ast.IndexListExpr:
		return p.object(x.X)
	}
	return nil
}

// origin returns the declaration of an instantiated variable or function.
func origin(o gotypes.Object) gotypes.Object {
	switch o := o.(type) {
	case *gotypes.Var:
		return o.Origin()
	case *gotypes.Func:
		return o.Origin()
	}
	return o
}

// calls reports whether a call is a call of a user callback.
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

// hidden reports whether an implementation of an unexported method calls user callbacks.
func (t *theirs) hidden(f *gotypes.Func) bool {
	for o := range t.objects {
		if m, is := o.(*gotypes.Func); is && m.Name() == f.Name() && !m.Exported() && m.Signature().Recv() != nil && f.Pkg() == t.pkg {
			return true
		}
	}
	return false
}

// are reports whether the value of an expression is a user callback or calls one.
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

// follow tracks user callbacks to where a node passes them.
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

// arguments tracks functions into parameters of this package's functions and into its types.
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

// receiver returns the name of a method's receiver type.
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
