package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const core = "github.com/pawl-go/pawl"

// published are the directories of the modules that users fetch, each after its requirements.
var published = []string{".", "schedule/cron", "transport/pawlsqs", "transport/pawlkafka", "transport/pawlnats", "transport/pawlrabbitmq", "filter/pawlredis", "observe", "dashboard",
	"cmd/pawl", "cmd/pawl/pawl-brokers", "vet"}

// pathOf returns the path of the module in a directory.
func pathOf(dir string) string { return path.Join(core, dir) }

// isPublished reports whether users can fetch the module.
func isPublished(modulePath string) bool {
	return slices.ContainsFunc(published, func(dir string) bool { return pathOf(dir) == modulePath })
}

// tagOf returns the git tag of a module's version.
func tagOf(dir, version string) string { return path.Join(dir, version) }

// A tree is a directory and its files that git tracks. Untracked files are in no release and not in
// the tree.
type tree struct {
	root  string
	files []string // relative to root, with slashes
}

// openTree lists the tracked files of the repository around dir. Their contents are those of the
// working tree.
func openTree(dir string) (*tree, error) {
	root, err := git(dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	t := &tree{root: strings.TrimSpace(root)}
	list, err := git(t.root, "ls-files", "-z")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(t.root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but not committed yet
		}
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file, which a module cannot contain", name)
		}
		t.files = append(t.files, name)
	}
	return t, nil
}

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// copyTo copies the tree.
func (t *tree) copyTo(dir string) (*tree, error) {
	for _, name := range t.files {
		if err := copyFile(filepath.Join(t.root, name), filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return &tree{root: dir, files: slices.Clone(t.files)}, nil
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// modules returns the directories of all modules, published or not.
func (t *tree) modules() (dirs []string) {
	for _, name := range t.files {
		if path.Base(name) == "go.mod" {
			dirs = append(dirs, path.Dir(name))
		}
	}
	return dirs
}

// filesOf returns the files of the module in dir, without those of nested modules.
func (t *tree) filesOf(dir string) (files []string) {
	modules := t.modules()
	for _, name := range t.files {
		nearest := path.Dir(name)
		for nearest != "." && !slices.Contains(modules, nearest) {
			nearest = path.Dir(nearest)
		}
		if nearest == dir {
			files = append(files, name)
		}
	}
	return files
}
