package surface

import (
	"cmp"
	"flag"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/api")

const folder = "../../../docs/api"

// The exported API of each public package equals its record in docs/api.
func TestAPI_IsTheRecordedOne(t *testing.T) {
	t.Parallel()
	h, recorded := loaded(t), map[string]bool{}
	for _, l := range h.packages {
		if !l.public() {
			continue
		}
		name := filepath.Join(folder, fileName(l))
		recorded[name] = true
		got := "package " + l.ImportPath + "\n\n" + strings.Join(lines(h.types[l.ImportPath]), "\n") + "\n"
		if *update {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		for _, line := range difference(string(want), got) {
			t.Errorf("%s: %s", l.short(), line)
		}
	}
	if t.Failed() {
		t.Log("if the change is meant: go test ./internal/testbed/surface -update")
	}
	files, err := filepath.Glob(folder + "/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		switch {
		case recorded[name]:
		case *update:
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("%s records a package that is gone", name)
		}
	}
}

func fileName(l listed) string {
	if l.short() == "." {
		return "pawl.txt"
	}
	return strings.ReplaceAll(l.short(), "/", ".") + ".txt"
}

// difference returns the lines that only one of two records has.
func difference(want, got string) (all []string) {
	in, out := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range in {
		if !slices.Contains(out, line) {
			all = append(all, "- "+line)
		}
	}
	for _, line := range out {
		if !slices.Contains(in, line) {
			all = append(all, "+ "+line)
		}
	}
	return all
}

// A line is a line of the record, with the name by which it is sorted.
type line struct{ name, text string }

// lines describes each exported identifier of a package in one line, sorted by name.
func lines(pkg *types.Package) (texts []string) {
	w := writer{pkg}
	var all []line
	for _, name := range pkg.Scope().Names() {
		if o := pkg.Scope().Lookup(name); o.Exported() {
			all = append(all, w.object(o)...)
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.name, b.name) })
	for _, l := range all {
		texts = append(texts, l.text)
	}
	return texts
}

// A writer prints types as the package itself would write them.
type writer struct{ pkg *types.Package }

func (w writer) typed(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == w.pkg {
			return ""
		}
		return p.Name()
	})
}

func (w writer) object(o types.Object) []line {
	switch o := o.(type) {
	case *types.Const:
		named := strings.TrimPrefix(w.typed(o.Type()), "untyped ")
		return []line{{o.Name(), fmt.Sprintf("const %s %s = %s", o.Name(), named, o.Val().ExactString())}}
	case *types.Var:
		return []line{{o.Name(), fmt.Sprintf("var %s %s", o.Name(), w.typed(o.Type()))}}
	case *types.Func:
		return []line{{o.Name(), "func " + o.Name() + strings.TrimPrefix(w.typed(o.Type()), "func")}}
	case *types.TypeName:
		return w.declared(o)
	}
	return nil
}

// declared describes a type, its exported fields and its exported methods, also for an alias.
func (w writer) declared(o *types.TypeName) []line {
	name, kind := o.Name(), ""
	switch under := o.Type().Underlying().(type) {
	case *types.Struct:
		kind = "struct"
	case *types.Interface:
		kind = "interface"
	default:
		kind = w.typed(under)
	}
	if alias, is := o.Type().(*types.Alias); is {
		kind = "= " + w.typed(alias.Rhs())
	}
	if hidden(o.Type().Underlying()) {
		kind += ", with members that are not exported"
	}
	all := []line{{name, "type " + w.parameters(o) + " " + kind}}
	all = append(all, w.fields(name, o.Type())...)
	return append(all, w.methods(name, o.Type())...)
}

// parameters returns the name of a type with its type parameters.
func (w writer) parameters(o *types.TypeName) string {
	named, is := o.Type().(*types.Named)
	if !is || named.TypeParams().Len() == 0 {
		return o.Name()
	}
	var all []string
	for p := range named.TypeParams().TypeParams() {
		all = append(all, p.Obj().Name()+" "+w.typed(p.Constraint()))
	}
	return o.Name() + "[" + strings.Join(all, ", ") + "]"
}

// hidden reports whether other packages can neither write the struct without field names nor
// implement the interface.
func hidden(under types.Type) bool {
	switch under := under.(type) {
	case *types.Struct:
		for f := range under.Fields() {
			if !f.Exported() {
				return true
			}
		}
	case *types.Interface:
		for m := range under.Methods() {
			if !m.Exported() {
				return true
			}
		}
	}
	return false
}

func (w writer) fields(name string, t types.Type) (all []line) {
	s, is := t.Underlying().(*types.Struct)
	if !is {
		return nil
	}
	for i := range s.NumFields() {
		f := s.Field(i)
		if !f.Exported() {
			continue
		}
		text := fmt.Sprintf("field %s.%s %s", name, f.Name(), w.typed(f.Type()))
		if f.Embedded() {
			text += " (embedded)"
		}
		if tag := s.Tag(i); tag != "" {
			text += " `" + tag + "`"
		}
		all = append(all, line{name + "." + f.Name(), text})
	}
	return all
}

// methods describes the methods of a type and of its pointer, including those of embedded fields.
func (w writer) methods(name string, t types.Type) (all []line) {
	on, receiver := t, "(*"+name+")"
	if types.IsInterface(t) {
		receiver = name
	} else {
		on = types.NewPointer(t)
	}
	byValue := types.NewMethodSet(t)
	for s := range types.NewMethodSet(on).Methods() {
		m := s.Obj()
		if !m.Exported() {
			continue
		}
		r := receiver
		if byValue.Lookup(m.Pkg(), m.Name()) != nil {
			r = name
		}
		all = append(all, line{name + "." + m.Name(), "method " + r + "." + m.Name() + strings.TrimPrefix(w.typed(s.Type()), "func")})
	}
	return all
}

// The configuration of a consumer and the package of the operator's verbs keep their decided size.
func TestAPI_StaysSmall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, lines string
		most        int
	}{{"consumer.txt", "field Config.", 17}, {"ops.txt", "type ", 45}} {
		text, err := os.ReadFile(filepath.Join(folder, c.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count("\n"+string(text), "\n"+c.lines); n == 0 || n > c.most {
			t.Errorf("%s has %d lines that begin with %q, at most %d are wanted", c.file, n, c.lines, c.most)
		}
	}
}

// Every Run of a type has the shape of the parts of package service: it takes a context and returns
// an error.
func TestAPI_EveryRunIsAPart(t *testing.T) {
	t.Parallel()
	runs := 0
	for _, l := range loaded(t).packages {
		if !l.public() {
			continue
		}
		for _, text := range lines(loaded(t).types[l.ImportPath]) {
			_, signature, is := strings.Cut(text, ".Run(")
			if !is || !strings.HasPrefix(text, "method ") {
				continue
			}
			if runs++; signature != "ctx context.Context) error" {
				t.Errorf("%s: %s, want Run(ctx context.Context) error", l.short(), text)
			}
		}
	}
	if runs < 7 {
		t.Errorf("only %d types have a Run", runs)
	}
}
