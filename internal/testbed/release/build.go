package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/module"
)

// A platform is one for which a release has a binary of pawl.
type platform struct{ os, arch string }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

func (p platform) String() string { return p.os + "_" + p.arch }

// build writes the files of a release into an empty directory: for each platform an archive with
// pawl, for Linux also a Debian package, and SHA256SUMS.
//
// A binary is the one that `CGO_ENABLED=0 go install -trimpath` installs at this version, so users
// can build it again and compare. It depends on the files of the tree and the version of Go, and
// not on the commit, the directory or the settings of the builder.
func (t *tree) build(version, to string) (err error) {
	if err := emptyDir(to); err != nil {
		return err
	}
	date, err := t.date(version)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "release-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := t.builder(version, dir)
	if err != nil {
		return err
	}
	shells, err := b.completions()
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	write := func(name string, text []byte) error {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), name)
		return os.WriteFile(filepath.Join(to, name), text, 0o644)
	}
	for _, p := range platforms {
		binary, licences, err := b.compile(p)
		if err != nil {
			return err
		}
		name := "pawl_" + strings.TrimPrefix(version, "v") + "_"
		err = write(name+p.String()+".tar.gz", tarball(date, []file{{"pawl", 0o755, binary}, {"LICENSES", 0o644, licences}}))
		if err == nil && p.os == "linux" {
			err = write(name+p.arch+".deb", debianPackage(version, p.arch, date, binary, licences, shells))
		}
		if err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(to, "SHA256SUMS"), sums.Bytes(), 0o644)
}

// emptyDir makes the directory, and refuses one that has files.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := os.ReadDir(dir)
	if err == nil && len(old) > 0 {
		err = fmt.Errorf("%s is not empty: name a new directory", dir)
	}
	return err
}

// date is the time of all files in the archives: $SOURCE_DATE_EPOCH, else the day of the version in
// CHANGELOG.md, else the beginning of Unix time.
func (t *tree) date(version string) (time.Time, error) {
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		return time.Unix(seconds, 0).UTC(), err
	}
	log, err := os.ReadFile(filepath.Join(t.root, "CHANGELOG.md"))
	if err != nil {
		return time.Time{}, err
	}
	section := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(version) + ` – (\S+)$`).FindSubmatch(log)
	if section == nil {
		return time.Unix(0, 0).UTC(), nil
	}
	return time.Parse(time.DateOnly, string(section[1]))
}

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
