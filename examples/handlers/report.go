package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/consumer"
)

// WriteReport writes a file for each message, once. The name is made from the key, and render must
// write the same octets each time, so a repeat after a crash replaces the file by an equal one. The
// file and its name are on the disk before the message counts as done.
func WriteReport(folder string, render func(w io.Writer, payload []byte) error) consumer.LeasedHandler {
	return consumer.Handle(func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		sum := sha256.Sum256([]byte(a.Key)) // a key may contain a slash
		name := hex.EncodeToString(sum[:]) + ".txt"
		if err := writeFile(folder, name, func(w io.Writer) error { return render(w, a.Payload) }); err != nil {
			return err
		}
		return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into report (key, file) values ($1, $2)", a.Key, name)
			return err
		})
	})
}

var fsync = (*os.File).Sync // tests record it and die in it

// writeFile writes a file of a folder whole or not at all. When it returns nil, a power failure
// does not lose the file. Each attempt has a temporary file of its own, so that a late one cannot
// write into the file of a newer one. It removes those of attempts that died.
func writeFile(folder, name string, write func(io.Writer) error) error {
	left, err := fs.Glob(os.DirFS(folder), ".tmp-"+name+"-*")
	if err != nil {
		return err
	}
	for _, file := range left {
		if err := os.Remove(filepath.Join(folder, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	temporary, err := os.CreateTemp(folder, ".tmp-"+name+"-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(temporary), temporary.Chmod(0o644), fsync(temporary), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), filepath.Join(folder, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	directory, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(fsync(directory), directory.Close())
}
