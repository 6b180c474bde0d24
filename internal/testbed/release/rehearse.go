package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A rehearsal is a local release: a copy of the tree with the version set, and a module proxy of
// it.
type rehearsal struct {
	dir     string // contains everything below
	lock    *os.File
	tree    *tree // the copy
	version string
	env     []string // for the go command: our modules from the proxy, others as usual
}

// rehearse releases a copy of the tree. The version is derived from the files and their location.
// So the module cache has no stale content, and compiled packages of an earlier rehearsal of the
// same files are reused. rehearse waits for other rehearsals of the tree.
func rehearse(t *tree) (_ *rehearsal, err error) {
	r := &rehearsal{}
	if r.version, err = t.rehearsed(); err != nil {
		return nil, err
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	place := sha256.Sum256([]byte(t.root))
	r.dir = filepath.Join(caches, "pawl-release", hex.EncodeToString(place[:8]))
	if r.lock, err = lock(t.root); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if err := os.RemoveAll(r.dir); err != nil { // left by a killed rehearsal
		return nil, err
	}
	return r, r.release(t)
}

// release writes the copy and its proxy.
func (r *rehearsal) release(t *tree) (err error) {
	if r.tree, err = t.copyTo(filepath.Join(r.dir, "tree")); err != nil {
		return err
	}
	if err := r.tree.set(r.version); err != nil {
		return err
	}
	if err := r.tree.writeProxy(r.version, r.proxy()); err != nil {
		return err
	}
	r.env, err = behind(r.proxy())
	return err
}

// rehearsed returns the version of a rehearsal of the tree.
func (t *tree) rehearsed() (string, error) {
	all := sha256.New()
	fmt.Fprintln(all, t.root)
	for _, name := range t.files {
		text, err := os.ReadFile(filepath.Join(t.root, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%q %d\n%s", name, len(text), text)
	}
	return fmt.Sprintf("v0.0.0-rehearsal.x%x", all.Sum(nil)[:8]), nil
}

// lock waits until no other rehearsal, of any process, holds the directory.
func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (r *rehearsal) proxy() string { return filepath.Join(r.dir, "proxy") }

// behind returns the environment of a go command that asks our proxy first, and then the proxies of
// this machine. The checksum database does not know our modules, so it is used for the others only.
func behind(proxy string) ([]string, error) {
	out, err := exec.Command("go", "env", "GOPROXY", "GONOSUMDB", "GOFLAGS").Output()
	if err != nil {
		return nil, err
	}
	usual := strings.Split(string(out), "\n")
	flags := strings.Fields(usual[2])
	for i, flag := range flags {
		if strings.HasPrefix(flag, "-mod=") {
			flags[i] = ""
		}
	}
	return append(os.Environ(), "GOWORK=off", "GOPROXY=file://"+filepath.ToSlash(proxy)+","+usual[0], "GONOSUMDB="+strings.Trim(core+","+usual[1], ","),
		"GOFLAGS="+strings.Join(flags, " ")), nil
}

// run runs a command in a directory as a user would, and returns its output. An error contains the
// output too.
func (r *rehearsal) run(dir string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(r.env, "PWD="+dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}

// eachByItself runs a go command in every module without the workspace. Published modules that
// require another use the copy and get it from the proxy. The core requires none. Unpublished
// modules are never built from a release, so they use t, with the published modules beside them.
func (r *rehearsal) eachByItself(t *tree, args ...string) error {
	for _, dir := range t.modules() {
		at := t.root
		if dir != "." && slices.Contains(published, dir) {
			at = r.tree.root
		}
		if _, err := r.run(filepath.Join(at, dir), "go", args...); err != nil {
			return fmt.Errorf("%s: %w", pathOf(dir), err)
		}
	}
	return nil
}

// close removes the rehearsal, also from the module cache.
func (r *rehearsal) close() error {
	defer r.lock.Close()
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	at := strings.TrimSpace(string(cache))
	for _, dir := range published {
		name := filepath.FromSlash(pathOf(dir))
		err = errors.Join(err, removeAll(filepath.Join(at, name+"@"+r.version)))
		// Fails only for an invalid pattern.
		files, _ := filepath.Glob(filepath.Join(at, "cache", "download", name, "@v", r.version+".*"))
		for _, file := range files {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

// removeAll removes a module from the cache. Directories there are read-only.
func removeAll(dir string) error {
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(name, 0o755)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.RemoveAll(dir))
}
