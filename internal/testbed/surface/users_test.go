package surface

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A name is an exported identifier of a public package: its import path and its name in the
// package.
type name struct{ pkg, is string }

// Users need every exported identifier. An identifier is for users if a guide, a reference page, an
// example program, a godoc example or the binary names it. It also is if an identifier for users
// has it in its signature, fields or methods. An identifier that only our own packages use belongs
// in an internal package. One without a page lacks documentation or is not needed.
func TestAPI_IsAllForUsers(t *testing.T) {
	t.Parallel()
	h := loaded(t)
	needed := h.reachable(t, h.named(t))
	callers := h.callers(t)
	for _, l := range h.packages {
		if !l.public() {
			continue
		}
		for _, is := range h.types[l.ImportPath].Scope().Names() {
			n := name{l.ImportPath, is}
			if !token.IsExported(is) || needed[n] {
				continue
			}
			where := l.short() + "." + is
			if len(callers[n]) > 0 {
				t.Errorf("%s is exported only for %s: move it to an internal package", where, strings.Join(slices.Sorted(maps.Keys(callers[n])), ", "))
			} else {
				t.Errorf("%s is exported and no guide, reference page or example names it", where)
			}
		}
	}
}

// named returns the identifiers that pages, example programs and godoc examples name.
func (h *house) named(t *testing.T) map[name]bool {
	all := map[name]bool{}
	mentions := map[string]bool{}
	for _, page := range pages(t) {
		for _, m := range mentioned.FindAllString(page, -1) {
			mentions[m] = true
		}
	}
	for path, pkg := range h.types {
		for _, is := range pkg.Scope().Names() {
			if mentions[pkg.Name()+"."+is] || mentions["`"+is+"`"] || mentions["`"+is+"("] {
				all[name{path, is}] = true
			}
		}
	}
	for _, l := range h.packages {
		for _, file := range slices.Concat(l.GoFiles, l.TestGoFiles, l.XTestGoFiles) {
			parsed := parse(t, filepath.Join(l.Dir, file))
			for _, d := range parsed.Decls {
				if f, is := d.(*ast.FuncDecl); l.program() || is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example") {
					maps.Copy(all, h.selected(parsed, d))
				}
			}
		}
	}
	return all
}

// mentioned matches consumer.Config in text and programs, and `KeyS3` and `KeyJSON("/id")` in text.
var mentioned = regexp.MustCompile("\\b[a-z]+\\.[A-Z]\\w*|`[A-Z]\\w*[`(]")

// notForUsers are the folders with pages about internals.
var notForUsers = []string{"docs/api", "docs/decisions", "docs/internals"}

func pages(t *testing.T) (texts []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("../../.."), "docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(notForUsers, path) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(filepath.Join("../../..", path))
		texts = append(texts, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../../README.md")
	if err != nil || len(texts) < 20 {
		t.Fatalf("%d pages: %v", len(texts), err)
	}
	return append(texts, string(readme))
}

// callers returns, for each identifier, the other packages of ours that name it outside of tests.
func (h *house) callers(t *testing.T) map[name]map[string]bool {
	all := map[name]map[string]bool{}
	for _, l := range h.packages {
		for _, file := range l.GoFiles {
			parsed := parse(t, filepath.Join(l.Dir, file))
			for n := range h.selected(parsed, parsed) {
				if all[n] == nil {
					all[n] = map[string]bool{}
				}
				all[n][l.short()] = true
			}
		}
	}
	return all
}

// selected returns the identifiers of public packages that a part of a file names.
func (h *house) selected(file *ast.File, piece ast.Node) map[name]bool {
	imported := map[string]string{}
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if pkg := h.types[path]; err == nil && pkg != nil {
			as := pkg.Name()
			if i.Name != nil {
				as = i.Name.Name
			}
			imported[as] = path
		}
	}
	all := map[name]bool{}
	ast.Inspect(piece, func(n ast.Node) bool {
		if s, is := n.(*ast.SelectorExpr); is {
			// The parser resolves variables but not package names.
			if x, is := s.X.(*ast.Ident); is && x.Obj == nil && imported[x.Name] != "" {
				all[name{imported[x.Name], s.Sel.Name}] = true
			}
		}
		return true
	})
	return all
}

// reachable adds what the signatures, fields and methods of some identifiers need, and the
// constants and variables of their types.
func (h *house) reachable(t *testing.T, from map[name]bool) map[name]bool {
	t.Helper()
	r := reach{h, map[name]bool{}}
	for n := range from {
		if h.types[n.pkg] != nil {
			r.add(n)
		}
	}
	for grown := -1; grown != len(r.all); {
		grown = len(r.all)
		for path, pkg := range h.types {
			for _, is := range pkg.Scope().Names() {
				switch o := pkg.Scope().Lookup(is).(type) {
				case *types.Const, *types.Var:
					if owner, is := types.Unalias(o.Type()).(*types.Named); is && o.Exported() && r.all[nameOf(owner.Obj())] {
						r.add(name{path, o.Name()})
					}
				}
			}
		}
	}
	return r.all
}

func nameOf(o types.Object) name {
	if o.Pkg() == nil {
		return name{}
	}
	return name{o.Pkg().Path(), o.Name()}
}

type reach struct {
	house *house
	all   map[name]bool
}

func (r *reach) add(n name) {
	pkg := r.house.types[n.pkg]
	if pkg == nil || r.all[n] {
		return
	}
	o := pkg.Scope().Lookup(n.is)
	if o == nil || !o.Exported() {
		return
	}
	r.all[n] = true
	r.walk(o.Type())
	if _, is := o.(*types.TypeName); !is {
		return
	}
	r.members(o.Type())
}

// members adds what the fields and methods of a type need.
func (r *reach) members(t types.Type) {
	r.walk(t.Underlying())
	on := t
	if !types.IsInterface(t) {
		on = types.NewPointer(t)
	}
	for m := range types.NewMethodSet(on).Methods() {
		if m.Obj().Exported() {
			r.walk(m.Type())
		}
	}
}

// walk adds the named types in a type.
func (r *reach) walk(t types.Type) {
	switch t := t.(type) {
	case *types.Named:
		r.add(nameOf(t.Obj()))
		for argument := range t.TypeArgs().Types() {
			r.walk(argument)
		}
	case *types.Alias:
		r.add(nameOf(t.Obj()))
		if rhs, is := t.Rhs().(*types.Named); is && strings.Contains(rhs.Obj().Pkg().Path(), "/internal/") {
			r.members(rhs)
		} else {
			r.walk(t.Rhs())
		}
	case *types.Pointer:
		r.walk(t.Elem())
	case *types.Slice:
		r.walk(t.Elem())
	case *types.Array:
		r.walk(t.Elem())
	case *types.Chan:
		r.walk(t.Elem())
	case *types.Map:
		r.walk(t.Key())
		r.walk(t.Elem())
	case *types.Signature:
		r.walk(t.Params())
		r.walk(t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			r.walk(v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				r.walk(f.Type())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			if m.Exported() {
				r.walk(m.Type())
			}
		}
		for e := range t.EmbeddedTypes() {
			r.walk(e)
		}
	}
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
