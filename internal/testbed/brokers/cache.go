package brokers

import (
	"os"
	"path/filepath"
	"strconv"
)

// cached returns the path of an entry in the cache directory of a program. If it is absent, build
// creates it in a fresh directory, from where it is renamed. If two processes build it at once, the
// first rename wins.
func cached(name, entry string, build func(fresh string) error) (string, error) {
	path, err := cachePath(name, entry)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fresh, err := os.MkdirTemp(filepath.Dir(path), "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if err := build(fresh); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(fresh, entry), path); err != nil {
		if _, absent := os.Stat(path); absent != nil {
			return "", err
		}
	}
	return path, nil
}

// cachePath returns the path of an entry. Downloads and builds stay there for later starts.
func cachePath(name, entry string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = filepath.Join(os.TempDir(), "pawl-cache-"+strconv.Itoa(os.Getuid()))
	}
	dir := filepath.Join(base, "pawl", name)
	return filepath.Join(dir, entry), os.MkdirAll(dir, 0o700)
}
