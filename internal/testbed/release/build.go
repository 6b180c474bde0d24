package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
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
