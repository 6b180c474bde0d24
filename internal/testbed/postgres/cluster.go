package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fill provides the cluster to start: the kept one, a copy of a cached one (about 45 ms), or a new
// one (about 450 ms).
func (s *Server) fill(ctx context.Context, o Options, store *store) error {
	exists, err := s.keep.prepare(s.who)
	if exists || err != nil {
		return err
	}
	if store.copyTo(s.data, s.who) {
		return nil
	}
	fresh := filepath.Join(s.dir, "new")
	if err := s.initdb(ctx, fresh, o.initdbArgs()); err != nil {
		return err
	}
	store.add(fresh)
	if s.keep == nil {
		_ = os.Remove(s.data) // an empty directory, if a copy failed
		return os.Rename(fresh, s.data)
	}
	if _, err := copyTree(fresh, s.data, s.who); err != nil {
		return fmt.Errorf("postgres: fill %s: %w", s.data, err)
	}
	return os.RemoveAll(fresh)
}

func (s *Server) initdb(ctx context.Context, dir string, args []string) error {
	cmd := s.who.command(ctx, filepath.Join(s.bin, "initdb"), append([]string{"-D", dir}, args...)...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	hint := ""
	if strings.Contains(string(out), "could not look up effective user ID") {
		hint = " (this user id has no passwd entry: add one, or allow user namespaces)"
	}
	return fmt.Errorf("postgres: initdb: %w%s\n%s", err, hint, strings.TrimSpace(string(out)))
}

// A store caches one initialised cluster per binary, version, arguments and user. Without it a
// start only takes longer, so no method returns an error.
type store struct {
	entry string // directory with the cluster and its size; "" without a cache
	used  bool   // the last started cluster is a copy
}

func (o Options) openStore(found install) *store {
	dir, err := o.cacheDir()
	if err != nil {
		return &store{}
	}
	key := sha256.Sum256(fmt.Append(nil, "1\n", found.bin, "\n", found.version.text, "\n", o.initdbArgs(), "\n", found.who))
	return &store{entry: filepath.Join(dir, fmt.Sprintf("cluster-%x", key[:8]))}
}

// copyTo reports whether data now holds a copy. It discards a copy whose size differs from the
// stored one.
func (c *store) copyTo(data string, who identity) bool {
	c.used = false
	if c.entry == "" {
		return false
	}
	want, err := os.ReadFile(filepath.Join(c.entry, "size"))
	if err != nil {
		return false
	}
	got, err := copyTree(filepath.Join(c.entry, "cluster"), data, who)
	if err != nil || got.String() != string(want) {
		c.forget()
		_ = emptyDir(data)
		return false
	}
	c.used = true
	now := time.Now()
	_ = os.Chtimes(c.entry, now, now) // for prune
	return true
}

// add stores a cluster that no server has opened yet. It builds the entry in a temporary directory
// and renames it. If two programs do so at once, the second finds the name taken and drops its own.
func (c *store) add(cluster string) {
	if c.entry == "" {
		return
	}
	beside, err := os.MkdirTemp(filepath.Dir(c.entry), filepath.Base(c.entry)+".")
	if err != nil {
		return
	}
	defer os.RemoveAll(beside)
	prune(filepath.Dir(c.entry))
	got, err := copyTree(cluster, filepath.Join(beside, "cluster"), identity{})
	if err != nil {
		return
	}
	if err := os.WriteFile(filepath.Join(beside, "size"), []byte(got.String()), 0o600); err == nil {
		_ = os.Rename(beside, c.entry)
	}
}

func (c *store) forget() {
	if c.entry != "" {
		_ = os.RemoveAll(c.entry)
	}
}

// prune removes unfinished work after an hour and unused clusters after a month.
func prune(cache string) {
	remove := func(pattern string, age time.Duration) {
		found, _ := filepath.Glob(filepath.Join(cache, pattern))
		for _, path := range found {
			if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > age {
				_ = os.RemoveAll(path)
			}
		}
	}
	remove("fetch.*", time.Hour)
	remove("cluster-*.*", time.Hour)
	remove("cluster-*", 30*24*time.Hour)
}

// cacheDir returns the directory for clusters and downloads. It is the user's cache directory, or
// for root a directory that the server's user can enter. No other user may write there.
func (o Options) cacheDir() (string, error) {
	root := os.Geteuid() == 0
	list := []string{o.tune.cache}
	if o.tune.cache == "" {
		list = nil
		if user, err := os.UserCacheDir(); err == nil && !root {
			list = append(list, filepath.Join(user, "pawl"))
		}
		if root {
			list = append(list, "/var/cache/pawl")
		}
		list = append(list, fmt.Sprintf("/tmp/pawl-cache-%d", os.Geteuid()))
	}
	var last error
	for _, dir := range list {
		if last = safeDir(dir, root); last == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("postgres: no cache directory: %w", last)
}

// safeDir creates dir if needed and checks that no other user can write to it.
func safeDir(dir string, root bool) error {
	mode := os.FileMode(0o700)
	if root {
		mode = 0o755 // the server's user runs the downloaded binaries
	} else if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	err := os.Mkdir(dir, mode)
	if err == nil {
		return os.Chmod(dir, mode)
	}
	info, statErr := os.Lstat(dir)
	if statErr != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s exists and is not only ours to write", dir)
	}
	return nil
}
