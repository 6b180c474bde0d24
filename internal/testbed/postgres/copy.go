package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A size shows whether a copy lost files.
type size struct {
	files int
	bytes int64
}

func (s size) String() string { return fmt.Sprintf("%d files, %d bytes\n", s.files, s.bytes) }

// copyTree copies directories and regular files with access for the owner only, and makes who the
// owner. The target may exist.
func copyTree(from, to string, who identity) (size, error) {
	var total size
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if entry.IsDir() {
			if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			return who.own(target)
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", path)
		}
		n, err := copyFile(path, target)
		total.files++
		total.bytes += n
		return errors.Join(err, who.own(target))
	})
	return total, err
}

func copyFile(from, to string) (int64, error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := out.ReadFrom(in) // uses copy_file_range if the kernel supports it
	return n, errors.Join(err, out.Close())
}

// emptyDir removes everything in dir except our lock file and mark.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if name := entry.Name(); name != holderFile && name != unfinished {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
		}
	}
	return err
}

// measure returns the number and size of the regular files below dir.
func measure(dir string) (size, error) {
	var total size
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total.files++
			total.bytes += info.Size()
		}
		return err
	})
	return total, err
}
