// Package scaffold writes the smallest service that runs, with a test.
package scaffold

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

//go:embed files
var files embed.FS

// A Project is the set of parameters of the files.
type Project struct {
	Module  string // path of the module, such as example.com/orders
	Version string // of Pawl, such as v1.2.3
	Pgx     string // of pgx
	Go      string // of the language
	Source  string // directory with Pawl's sources, used instead of Version if not empty
}

// Name is the last element of the module's path.
func (p Project) Name() string { return path.Base(p.Module) }

// ErrNotEmpty means that the directory is not empty.
var ErrNotEmpty = errors.New("the directory is not empty")

var modulePath = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]*(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$`)

// ValidModule reports whether a path is a valid module path.
func ValidModule(module string) bool {
	return modulePath.MatchString(module) && !strings.HasSuffix(module, ".") && module != "std" && module != "cmd" && len(module) <= 200
}

// Write writes the project into a directory that does not exist or is empty except for .git. It
// returns the files in order. It overwrites no file.
func (p Project) Write(dir string) (written []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range there {
		if entry.Name() != ".git" {
			return nil, fmt.Errorf("%w: it holds %s", ErrNotEmpty, entry.Name())
		}
	}
	for _, f := range []struct{ from, to string }{{"go.mod.txt", "go.mod"}, {"main.go.txt", "main.go"}, {"main_test.go.txt", "main_test.go"},
		{"README.md.txt", "README.md"}, {"gitignore.txt", ".gitignore"}} {
		text, err := p.render(f.from)
		if err != nil {
			return written, err
		}
		to := filepath.Join(dir, f.to)
		if err := create(to, text); err != nil {
			return written, err
		}
		written = append(written, to)
	}
	return written, nil
}

func (p Project) render(name string) (string, error) {
	source, err := fs.ReadFile(files, "files/"+name)
	if err != nil {
		return "", err
	}
	parsed, err := template.New(name).Parse(string(source))
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = parsed.Execute(&text, p)
	return text.String(), err
}

func create(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
