package postgres

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// Limits for an archive. The known ones contain about 1,030 files and 60 to 150 MB.
const (
	maxUnpacked = 512 << 20
	maxEntries  = 20_000
)

// linkList is the file with a package's symbolic links, which npm does not pack.
const linkList = "package/native/pg-symlinks.json"

func unpackFile(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	return unpack(bufio.NewReader(f), dir)
}

// unpack writes the regular files of a gzipped tar below dir and creates the links of its list. The
// files are readable by all, because the server may run as another user. The os.Root refuses every
// name outside dir.
func unpack(r io.Reader, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // independent of the umask
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	gz, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	archive := tar.NewReader(gz)
	left := int64(maxUnpacked)
	for range maxEntries {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return addLinks(root)
		}
		if err != nil {
			return err
		}
		if left -= header.Size; left < 0 {
			return fmt.Errorf("unpacks to more than %d bytes", maxUnpacked)
		}
		if err := unpackOne(root, header, archive); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
	return fmt.Errorf("holds more than %d entries", maxEntries)
}

func unpackOne(root *os.Root, header *tar.Header, content io.Reader) error {
	if !filepath.IsLocal(header.Name) {
		return errors.New("leaves the archive")
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return makeDirs(root, path.Clean(header.Name))
	case tar.TypeReg:
	default:
		return errors.New("is neither a file nor a directory")
	}
	if err := makeDirs(root, path.Dir(header.Name)); err != nil {
		return err
	}
	f, err := root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if header.Mode&0o111 != 0 {
		mode = 0o755
	}
	_, err = io.Copy(f, content) // the tar reader ends at header.Size
	return errors.Join(err, f.Chmod(mode), f.Close())
}

func makeDirs(root *os.Root, dir string) error {
	if info, err := root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if parent := path.Dir(dir); parent != dir && parent != "." {
		if err := makeDirs(root, parent); err != nil {
			return err
		}
	}
	if err := root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return root.Chmod(dir, 0o755)
}

// addLinks creates the symbolic links of the list. Each must point to an existing file of the same
// package.
func addLinks(root *os.Root) error {
	text, err := root.ReadFile(linkList)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("%s: %w", linkList, err)
	}
	for _, link := range links {
		if !filepath.IsLocal(link.Source) || !filepath.IsLocal(link.Target) {
			return fmt.Errorf("link %s to %s leaves the archive", link.Target, link.Source)
		}
		source, target := path.Join("package", link.Source), path.Join("package", link.Target)
		if info, err := root.Lstat(source); err != nil || !info.Mode().IsRegular() {
			return fmt.Errorf("link %s to %s, which is not a file", link.Target, link.Source)
		}
		to, err := filepath.Rel(path.Dir(target), source)
		if err != nil {
			return err
		}
		if err := root.Symlink(to, target); err != nil {
			return err
		}
	}
	return nil
}
