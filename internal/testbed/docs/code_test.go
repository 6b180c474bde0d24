package docs_test

import (
	"cmp"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// examples has the positions of all examples.
var examples = token.NewFileSet()

var goFence = regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```$")

// The Go code of each page parses and type-checks, and declares nothing twice, so it compiles where
// it is pasted. The reader supplies what it does not declare or import.
func TestCode_OfPages(t *testing.T) {
	t.Parallel()
	l, found := exported(t), 0
	for _, page := range files(t, ".md") {
		text := read(t, page)
		found += len(goFence.FindAllString(text, -1))
		for _, wrong := range l.wrong(text) {
			t.Errorf("%s: %s", page, wrong)
		}
	}
	if found < 80 {
		t.Errorf("found only %d examples", found)
	}
	plantMistakes(t, l)
}

// plantMistakes fails unless each planted mistake is found.
func plantMistakes(t *testing.T, l library) {
	t.Helper()
	const right = "_, err := job.Enqueue(ctx, tx, job.Request{Queue: \"q\"})\n\nfunc handle() {}\n"
	for mistake, correct := range map[string]string{
		"job.Enqueue(ctx)":    "job.Enqueue(ctx, tx,",
		"job.Enlist(ctx, tx,": "job.Enqueue(ctx, tx,",
		"Lane: 17":            `Queue: "q"`,
		"Line: \"q\"":         `Queue: "q"`,
		"func handle() }":     "func handle() {}",
		"func handle() {}\n```\n\n```go\nfunc handle() {}": "func handle() {}",
	} {
		if wrong := l.wrong("```go\n" + strings.Replace(right, correct, mistake, 1) + "```\n"); len(wrong) == 0 {
			t.Errorf("%s passes", mistake)
		}
	}
	if wrong := l.wrong("```go\n" + right + "```\n"); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// wrong returns the errors in the Go code of a page.
func (l library) wrong(page string) (all []string) {
	var code []string
	for _, m := range goFence.FindAllStringSubmatch(page, -1) {
		code = append(code, m[1])
	}
	declared := map[string]bool{}
	for len(code) > 0 {
		file, n, err := first(code)
		alone := strings.HasPrefix(code[0], "package ")
		if err != nil {
			all = append(all, err.Error()+"\n"+code[0])
		}
		if code = code[n:]; err != nil {
			continue
		}
		for _, name := range declarations(file) {
			if !alone && declared[name] {
				all = append(all, name+" is declared twice")
			}
			declared[name] = declared[name] || !alone
		}
		for _, complaint := range l.check(file) {
			// A variable of an earlier example may have the name of a package.
			name, _, _ := strings.Cut(strings.TrimPrefix(complaint, "undefined: "), ".")
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `(?:, \w+)* :=`).MatchString(page) {
				all = append(all, complaint)
			}
		}
	}
	return all
}

// first parses the first example, together with as many following ones as needed, and returns their
// number.
func first(all []string) (file *ast.File, n int, err error) {
	for n = 1; n <= len(all); n++ {
		file, e := parsed(strings.Join(all[:n], "\n"))
		if e == nil {
			return file, n, nil
		}
		if n == 1 {
			err = e
		}
	}
	return nil, 1, err
}

// parsed parses an example: a file, declarations, statements followed by declarations, or the
// elements of a literal. It removes each …, which stands for omitted code.
func parsed(text string) (file *ast.File, err error) {
	text = regexp.MustCompile(`, …|…, |…`).ReplaceAllString(text, "")
	parts := strings.Split(text, "\n\n") // declarations follow an empty line
	sources := []string{text}
	for n := range len(parts) + 1 {
		statements, rest := strings.Join(parts[:n], "\n\n"), strings.Join(parts[n:], "\n\n")
		sources = append(sources, "package p\n"+rest+"\nfunc _() (_ error) {\n"+statements+"\n}\n")
	}
	sources = append(sources, "package p\nvar _ = T{\n"+text+"}\n")
	for _, source := range sources {
		file, e := parser.ParseFile(examples, "", source, 0)
		if e == nil {
			return file, nil
		}
		err = cmp.Or(err, e)
	}
	return nil, err
}

// declarations returns the names that a file declares, except those that may be declared again.
func declarations(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			switch {
			case d.Recv != nil:
				names = append(names, nameOf(d.Recv.List[0].Type)+"."+d.Name.Name)
			case d.Name.Name != "_" && d.Name.Name != "init":
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.Name != "_" {
							names = append(names, n.Name)
						}
					}
				}
			}
		}
	}
	return names
}

// A library imports packages by their export data.
type library struct {
	importer types.Importer
	paths    map[string]string // by the packages' names
}

// exported builds all packages of the workspace and returns the exports of these packages and their
// imports.
func exported(t *testing.T) library {
	t.Helper()
	list := func(arguments ...string) string {
		cmd := exec.Command("go", append([]string{"list"}, arguments...)...)
		var complaints strings.Builder
		cmd.Dir, cmd.Stderr = root, &complaints
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, &complaints)
		}
		return string(out)
	}
	modules := strings.Fields(list("-m", "-f", "{{.Dir}}/..."))
	l, from := library{paths: existing(t).usual}, map[string]string{}
	for line := range strings.Lines(list(append([]string{"-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}"}, modules...)...)) {
		if f := strings.Fields(line); len(f) == 2 {
			from[f[0]] = f[1]
		}
	}
	l.importer = importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(from[path]) })
	return l
}

// theReaders matches errors about code that the reader supplies or that an example does not use.
var theReaders = regexp.MustCompile(`^undefined: \w+$|not used|^missing return|return values|^no new variables|redeclared`)

// check type-checks an example and returns the errors that no completion by the reader can fix.
func (l library) check(file *ast.File) (wrong []string) {
	var add []ast.Spec
	added := map[string]bool{}
	for _, name := range file.Unresolved {
		if from := l.paths[name.Name]; from != "" && !added[from] {
			added[from] = true
			at := &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(from)}
			add = append(add, &ast.ImportSpec{Name: ast.NewIdent(name.Name), Path: at})
		}
	}
	for _, i := range file.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		add = slices.DeleteFunc(add, func(s ast.Spec) bool { return s.(*ast.ImportSpec).Name.Name == path.Base(from) })
	}
	file.Decls = append([]ast.Decl{&ast.GenDecl{Tok: token.IMPORT, Lparen: 1, Specs: add}}, file.Decls...)
	config := types.Config{Importer: l.importer, Error: func(err error) {
		if e, is := err.(types.Error); is && !theReaders.MatchString(e.Msg) && !strings.HasPrefix(e.Msg, "\t") {
			wrong = append(wrong, e.Msg)
		}
	}}
	_, _ = config.Check("p", examples, []*ast.File{file}, nil)
	return wrong
}
