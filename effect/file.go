package effect

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// A NamedFile is a file whose name comes from the intent, so that it is written once: see [File].
type NamedFile struct{ dir, name string }

// plainName is what is a file's name everywhere, as it is. Without capitals, which some file systems do not tell from small letters, and
// without a dot at its end, which some drop.
var plainName = regexp.MustCompile(`^[a-z0-9_-]([a-z0-9._-]{0,98}[a-z0-9_-])?$`)

// hashName is the form of the names of all other keys. A key of that form is hashed as well, so that no two keys have one name.
var hashName = regexp.MustCompile(`^[0-9a-f]{64}$`)

// File names the file of an intent in dir, which must exist. The name is key, if it consists of at most 100 small letters, digits, dots,
// dashes and underscores, neither begins nor ends with a dot, and is not 64 hexadecimal digits; else its SHA-256, in hexadecimal. So two keys
// never have one name. Writing it is [Repeatable]:
//
//	effect.Do(ctx, pool, job, effect.Step{Name: "export", Policy: effect.Repeatable()}, func(ctx context.Context, c effect.Call) (string, error) {
//		f := effect.File("/exports", c.Key())
//		_, err := f.Write(func(w io.Writer) error { return export(w) })
//		return f.Path(), err
//	})
func File(dir, key string) NamedFile {
	if !plainName.MatchString(key) || hashName.MatchString(key) {
		sum := sha256.Sum256([]byte(key))
		key = hex.EncodeToString(sum[:])
	}
	return NamedFile{dir, key}
}

// Path of the file.
func (f NamedFile) Path() string { return filepath.Join(f.dir, f.name) }

// Write makes the file of what write writes, unless it is there, and reports whether it did. The file appears whole or not at all: it
// is written beside, made durable, and renamed. Of two writers at once one wins, so both must write the same. A crash leaves nothing
// but a file that begins with a dot, which may be deleted.
func (f NamedFile) Write(write func(io.Writer) error) (written bool, err error) {
	if _, err := os.Stat(f.Path()); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	temporary, err := os.CreateTemp(f.dir, "."+f.name+".*")
	if err != nil {
		return false, err
	}
	defer func() {
		if !written {
			_ = os.Remove(temporary.Name())
		}
	}()
	err = errors.Join(write(temporary), temporary.Chmod(0o644), temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), f.Path())
	}
	if err != nil {
		return false, fmt.Errorf("file %s: %w", f.Path(), err)
	}
	return true, syncDirectory(f.dir)
}

// syncDirectory makes a rename durable.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
