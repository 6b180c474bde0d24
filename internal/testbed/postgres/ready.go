package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// errExited means that the server process ended before it answered.
var errExited = errors.New("postgres: the server ended before it answered")

// ready tries a query every 3 ms until it succeeds. An open socket does not mean that recovery is
// over.
func (s *Server) ready(ctx context.Context) error {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			return s.whyExited()
		case <-ctx.Done():
			return fmt.Errorf("postgres: the server did not answer in time: %w: last try: %s%s", ctx.Err(), oneLine(err.Error()), s.logTail())
		case <-tick.C:
		}
	}
}

func (s *Server) ask(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "select 1")
	return err
}

// whyExited returns ErrBusy if another server holds the data directory, else errExited with the
// log.
func (s *Server) whyExited() error {
	tail := s.logTail()
	if s.keep != nil && strings.Contains(tail, `"postmaster.pid" already exists`) {
		server, _ := readPidFile(s.data)
		return busy(s.data, server.pid)
	}
	return fmt.Errorf("%w%s", errExited, tail)
}

// logTail returns at most 4 KiB of whole lines from the end of the server's log.
func (s *Server) logTail() string {
	const limit = 4 << 10
	f, err := os.Open(s.logFile())
	if err != nil {
		return ""
	}
	defer f.Close()
	cut := false
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		_, err = f.Seek(-limit, io.SeekEnd)
		cut = err == nil
	}
	text, _ := io.ReadAll(io.LimitReader(f, limit))
	tail := string(text)
	if cut {
		_, tail, _ = strings.Cut(tail, "\n")
	}
	return "\n" + strings.TrimSpace(tail)
}
