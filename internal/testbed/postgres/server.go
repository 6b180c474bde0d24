package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	superuser = "postgres"

	// startLimit bounds the total of initdb, recovery and the first query.
	startLimit = 2 * time.Minute
	// quickStop bounds a stop without a checkpoint. cleanStop bounds one that writes a checkpoint
	// to a slow disk.
	quickStop = 20 * time.Second
	cleanStop = time.Minute
)

// A Server is a running private PostgreSQL server.
type Server struct {
	install
	// dir contains the socket, the log and the throwaway cluster, or a link to the kept one.
	dir  string
	data string
	// host is where clients find the socket: dir, or for a kept cluster a link to dir with a stable
	// name.
	host string
	keep *keep // nil for a throwaway cluster

	// lock is a flock on dir. The kernel releases it when this process dies, which tells the sweep.
	lock *os.File
	dog  *watchdog
	cmd  *exec.Cmd
	done chan struct{}
	stop func() error
}

// Start starts a server and returns once a query works. ctx bounds only the start. A failed start
// leaves nothing behind, and its error ends with the last lines of the server's log.
//
// Errors: [ErrNotFound] if there is no PostgreSQL and none could be downloaded, [ErrBusy] if
// another program holds DataDir.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := startAnew(ctx, o)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		// The cause is ctx, which killed a child.
		err = fmt.Errorf("postgres: the start was cancelled: %w: %w", ctx.Err(), err)
	}
	return s, err
}

// startAnew starts a server, and tries a new cluster if a cached copy did not start.
func startAnew(ctx context.Context, o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	found, err := find(ctx, o)
	if err != nil {
		return nil, err
	}
	go o.sweep(found.who) // in the background, because it may wait for a server to stop

	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	store := o.openStore(found)
	s, err := start(ctx, o, found, store)
	if store.used && errors.Is(err, errExited) {
		// The copy of a cached cluster did not start. The cache may have lost files (a cleaner of
		// /tmp, a full disk), so create a new cluster before giving up.
		store.forget()
		s, err = start(ctx, o, found, store)
	}
	return s, err
}

func start(ctx context.Context, o Options, found install, store *store) (_ *Server, err error) {
	s := &Server{install: found, done: make(chan struct{})}
	s.stop = sync.OnceValue(s.shutDown)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	// If the process dies in any of these steps, the watchdog or else the next sweep removes the
	// directory.
	if err := s.open(o); err != nil {
		return nil, err
	}
	if err := s.fill(ctx, o, store); err != nil {
		return nil, err
	}
	if err := s.launch(o); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	// Only now, because another server may hold the cluster.
	if s.host, err = s.keep.link(o, s.dir, s.who); err != nil {
		return nil, err
	}
	return s, s.keep.complete(o.Durable)
}

// open creates and locks the directory, starts the watchdog and takes the kept data directory, if
// any.
func (s *Server) open(o Options) (err error) {
	if s.dir, s.lock, err = o.takeDir(s.who); err != nil {
		return err
	}
	if s.dog, err = startWatchdog(s.dir, s.who); err != nil {
		return err
	}
	s.host, s.data = s.dir, filepath.Join(s.dir, "data")
	if o.DataDir == "" {
		return nil
	}
	if s.keep, err = takeDataDir(o.DataDir, s.who); err != nil {
		return err
	}
	if err := os.Symlink(o.DataDir, s.data); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	s.data = o.DataDir
	return nil
}

// launch starts postgres directly and not through pg_ctl, so that we can wait for its process.
func (s *Server) launch(o Options) error {
	// Not our stdout: go test would wait until the server closes it.
	log, err := os.Create(s.logFile())
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), o.serverArgs(s.dir, s.data)...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", childEnv(), s.who.attr()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("postgres: start %s: %w", cmd.Path, err)
	}
	s.cmd = cmd
	go func() {
		_ = cmd.Wait()
		close(s.done)
	}()
	return s.dog.guard(cmd.Process.Pid)
}

// URL returns the connection string of a database on the server, such as
// postgres://postgres@/NAME?host=DIR. It contains the port, so that PGPORT and similar variables
// have no effect. For a kept cluster it is the same at each start.
func (s *Server) URL(database string) string {
	q := url.Values{"host": {s.host}, "port": {port}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database, RawQuery: Settings(q)}
	return u.String()
}

// Settings returns the query of a connection string. It encodes a space as %20, because PostgreSQL
// and pgx do not decode a +.
func Settings(q url.Values) string { return strings.ReplaceAll(q.Encode(), "+", "%20") }

// PID returns the process id of the server.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Dir returns the directory of the socket and the log. Stop removes it.
func (s *Server) Dir() string { return s.dir }

// DataDir returns the directory of the cluster: Options.DataDir, or a directory inside Dir.
func (s *Server) DataDir() string { return s.data }

// BinDir returns the directory of the server's programs. It may contain pgbench.
func (s *Server) BinDir() string { return s.bin }

// Version returns the server's version, such as "15.18".
func (s *Server) Version() string { return s.version.text }

// Major returns the major version, such as 15.
func (s *Server) Major() int { return s.version.major }

// Done returns a channel that is closed once the server has exited.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop stops the server and removes what is not kept. It waits up to 20 s for a throwaway server,
// and up to a minute for one that writes its checkpoint. Later calls return the first result.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) shutDown() error {
	if err := s.halt(); err != nil {
		return err // the watchdog tries again when this process ends
	}
	var err error
	if s.dir != "" {
		err = os.RemoveAll(s.dir)
	}
	s.dog.dismiss()
	if s.lock != nil {
		_ = s.lock.Close()
	}
	if s.host != s.dir {
		_ = os.Remove(s.host)
	}
	s.keep.release()
	return err
}

// halt ends the server process: by SIGQUIT for a throwaway cluster, by SIGINT with a checkpoint for
// a kept one. SIGKILL never follows, because it leaves the System V segment behind, and macOS has
// few of them.
func (s *Server) halt() error {
	if s.cmd == nil {
		return nil
	}
	if s.keep != nil {
		_ = s.cmd.Process.Signal(syscall.SIGINT)
		if s.exitsWithin(cleanStop) {
			return nil
		}
	}
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	if s.exitsWithin(quickStop) {
		return nil
	}
	return fmt.Errorf("postgres: server %d did not stop in time (see %s)", s.PID(), s.logFile())
}

func (s *Server) exitsWithin(limit time.Duration) bool {
	select {
	case <-s.done:
		return true
	case <-time.After(limit):
		return false
	}
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }
