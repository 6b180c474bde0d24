package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// pack writes the zip of a published module with the files that the go command takes from a tag.
// These are all tracked files, and the repository's LICENSE if the module has none.
func (t *tree) pack(w io.Writer, dir, version string) error {
	var files []zip.File
	for _, name := range t.filesOf(dir) {
		inside := name
		if dir != "." {
			inside = strings.TrimPrefix(name, dir+"/")
		}
		files = append(files, packed{inside, filepath.Join(t.root, name)})
	}
	licensed := slices.ContainsFunc(files, func(f zip.File) bool { return f.Path() == "LICENSE" })
	if !licensed {
		files = append(files, packed{"LICENSE", filepath.Join(t.root, "LICENSE")})
	}
	return zip.Create(w, module.Version{Path: pathOf(dir), Version: version}, files)
}

type packed struct{ inside, name string }

func (f packed) Path() string                 { return f.inside }
func (f packed) Lstat() (os.FileInfo, error)  { return os.Lstat(f.name) }
func (f packed) Open() (io.ReadCloser, error) { return os.Open(f.name) }

// sums returns the two go.sum lines of a published module.
func (t *tree) sums(dir, version string) (lines [2]string, err error) {
	packed, err := os.CreateTemp("", "module-*.zip")
	if err != nil {
		return lines, err
	}
	defer os.Remove(packed.Name())
	if err := errors.Join(t.pack(packed, dir, version), packed.Close()); err != nil {
		return lines, err
	}
	whole, err := dirhash.HashZip(packed.Name(), dirhash.Hash1)
	if err != nil {
		return lines, err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(filepath.Join(t.root, dir, "go.mod")) })
	if err != nil {
		return lines, err
	}
	name := pathOf(dir) + " " + version
	return [2]string{name + " " + whole, name + "/go.mod " + mod}, nil
}

// writeProxy writes the published modules at a version into a directory that serves as
// GOPROXY=file://.
func (t *tree) writeProxy(version, to string) error {
	for _, dir := range published {
		// No capitals in these paths, so no escaping.
		at := filepath.Join(to, filepath.FromSlash(path.Join(pathOf(dir), "@v")))
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		info, err := json.Marshal(struct {
			Version string
			Time    time.Time
		}{version, time.Now().UTC().Truncate(time.Second)})
		if err != nil {
			return err
		}
		packed, err := os.Create(filepath.Join(at, version+".zip"))
		if err != nil {
			return err
		}
		err = errors.Join(t.pack(packed, dir, version), packed.Close(),
			os.WriteFile(filepath.Join(at, version+".info"), info, 0o644),
			os.WriteFile(filepath.Join(at, "list"), []byte(version+"\n"), 0o644),
			copyFile(filepath.Join(t.root, dir, "go.mod"), filepath.Join(at, version+".mod")))
		if err != nil {
			return fmt.Errorf("%s: %w", pathOf(dir), err)
		}
	}
	return nil
}
