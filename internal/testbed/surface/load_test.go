package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/pawl-go/pawl"

// A listed is a package as `go list -json` prints it.
type listed struct {
	ImportPath, Dir, Name, Export      string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Module                             *struct{ Main bool }
}

// ours reports whether the package belongs to a module of go.work.
func (l listed) ours() bool { return l.Module != nil && l.Module.Main }

// public reports whether the package is for users.
func (l listed) public() bool {
	return l.ours() && l.Name != "main" && !strings.Contains(l.ImportPath+"/", "/internal/") && !l.example() && l.ImportPath != module+"/bench"
}

// example reports whether the package is an example for users.
func (l listed) example() bool { return strings.HasPrefix(l.ImportPath, module+"/examples") }

// program reports whether the package uses the others as a user's program does.
func (l listed) program() bool { return l.example() || strings.HasPrefix(l.ImportPath, module+"/cmd/") }

// short returns the import path without the common prefix, or "." for the root.
func (l listed) short() string {
	if l.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(l.ImportPath, module+"/")
}

// A house contains every package of every module in go.work, and the types of the public ones.
type house struct {
	packages []listed
	types    map[string]*types.Package // by import path
	exports  map[string]string         // files with the compiler's export data
}

var load = sync.OnceValues(func() (*house, error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return nil, err
	}
	modules, err := goList(root, "-m", "-f", "{{.Dir}}/...")
	if err != nil {
		return nil, err
	}
	text, err := goList(root, append([]string{"-deps", "-export", "-json=ImportPath,Dir,Name,Export,GoFiles,TestGoFiles,XTestGoFiles,Module"},
		strings.Fields(string(modules))...)...)
	if err != nil {
		return nil, err
	}
	h := &house{types: map[string]*types.Package{}, exports: map[string]string{}}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		h.exports[l.ImportPath] = l.Export
		if l.ours() {
			h.packages = append(h.packages, l)
		}
	}
	compiled := h.compiled()
	for _, l := range h.packages {
		if !l.public() {
			continue
		}
		if h.types[l.ImportPath], err = compiled.Import(l.ImportPath); err != nil {
			return nil, err
		}
	}
	return h, nil
})

// compiled returns an importer that reads the compiler's export data.
func (h *house) compiled() types.Importer {
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(h.exports[path]) })
}

// goList runs `go list` in a folder.
func goList(dir string, args ...string) ([]byte, error) {
	list := exec.Command("go", append([]string{"list"}, args...)...)
	list.Dir, list.Stderr = dir, os.Stderr
	return list.Output()
}

func loaded(t *testing.T) *house {
	t.Helper()
	h, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return h
}
