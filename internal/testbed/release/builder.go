package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// A builder installs pawl from a module proxy of the release, with a module cache of its own.
type builder struct {
	*rehearsal
	path string // GOPATH
}

func (t *tree) builder(version, dir string) (*builder, error) {
	b := &builder{&rehearsal{dir: dir, version: version}, filepath.Join(dir, "go")}
	if err := b.release(t); err != nil {
		return nil, err
	}
	b.env = append(b.env, "GOPATH="+b.path, "GOMODCACHE="+filepath.Join(b.path, "mod"), "GOBIN=", "GOFLAGS=-trimpath -modcacherw",
		"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	return b, nil
}

// completions returns the completion scripts of pawl by shell.
func (b *builder) completions() (map[string][]byte, error) {
	pawl, err := b.install(platform{runtime.GOOS, runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	scripts := map[string][]byte{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := b.run(b.dir, pawl, "completion", shell)
		if err != nil {
			return nil, err
		}
		scripts[shell] = []byte(text)
	}
	return scripts, nil
}

// install installs pawl for a platform and returns the name of the binary.
func (b *builder) install(p platform) (string, error) {
	on := *b.rehearsal
	on.env = append(slices.Clone(b.env), "GOOS="+p.os, "GOARCH="+p.arch)
	if _, err := on.run(b.dir, "go", "install", pathOf("cmd/pawl")+"@"+b.version); err != nil {
		return "", err
	}
	if p == (platform{runtime.GOOS, runtime.GOARCH}) {
		return filepath.Join(b.path, "bin", "pawl"), nil
	}
	return filepath.Join(b.path, "bin", p.String(), "pawl"), nil
}

// compile returns the binary for a platform, and the licences of all that is in it.
func (b *builder) compile(p platform) (binary, licences []byte, err error) {
	name, err := b.install(p)
	if err != nil {
		return nil, nil, err
	}
	if binary, err = os.ReadFile(name); err != nil {
		return nil, nil, err
	}
	licences, err = b.licences(name)
	return binary, licences, err
}

var licence = regexp.MustCompile(`^(LICENSE|LICENCE|COPYING|NOTICE)(\.(md|txt))?$`)

// licences returns the licence of Pawl, and those of Go and of each module in a binary.
func (b *builder) licences(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	root, err := b.run(b.dir, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	err = errors.Join(appendLicences(&all, core, b.tree.root), appendLicences(&all, "Go", strings.TrimSpace(root)))
	for _, m := range info.Deps {
		if isPublished(m.Path) {
			continue
		}
		escaped, failed := module.EscapePath(m.Path)
		err = errors.Join(err, failed, appendLicences(&all, m.Path+" "+m.Version, filepath.Join(b.path, "mod", filepath.FromSlash(escaped)+"@"+m.Version)))
	}
	return all.Bytes(), err
}

func appendLicences(all *bytes.Buffer, of, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		if !licence.MatchString(f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(all, "---- %s: %s ----\n\n%s\n\n", of, f.Name(), bytes.TrimSpace(text))
		found = true
	}
	if !found {
		return fmt.Errorf("%s has no licence in %s", of, dir)
	}
	return nil
}
