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

	// startLimit bounds initdb, recovery and the first query together.
	startLimit = 2 * time.Minute
	// quickStop bounds a stop that writes nothing; cleanStop one that writes a checkpoint to a slow disk.
	quickStop = 20 * time.Second
	cleanStop = time.Minute
)

// A Server is a running PostgreSQL server of our own.
type Server struct {
	install
	options Options
	dir     string // socket, log, and the throwaway cluster or a link to the kept one
	data    string
	host    string // where clients find the socket: dir, or for a kept cluster a link to it whose name stays the same
	keep    *keep  // nil for a throwaway cluster

	lock *os.File // flock on dir: the kernel lets go when we die, and that is how the sweep knows
	dog  *watchdog
	cmd  *exec.Cmd
	done chan struct{}
	stop func() error
}

// Start starts a server and returns once a query works. ctx bounds the start only; it does not stop the server later.
// A failed start leaves nothing behind; its error ends in the last lines of the server's log.
//
// Errors: [ErrNotFound] if there is no PostgreSQL and none could be fetched, [ErrBusy] if another program holds
// DataDir.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := startAnew(ctx, o)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("postgres: start was given up: %w: %w", ctx.Err(), err) // a child that we ended
	}
	return s, err
}

// startAnew starts a server, and a second one if the first was a bad copy.
func startAnew(ctx context.Context, o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	found, err := find(ctx, o)
	if err != nil {
		return nil, err
	}
	go o.sweep(found.who) // in the background: it may wait for a server to stop

	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	store := o.openStore(found)
	s, err := start(ctx, o, found, store)
	if store.used && errors.Is(err, errExited) {
		// A copy of a cached cluster did not come up. The cache may have rotted (a cleaner of /tmp, a full disk), so
		// make a cluster afresh before giving up.
		store.forget()
		s, err = start(ctx, o, found, store)
	}
	return s, err
}

func start(ctx context.Context, o Options, found install, store *store) (_ *Server, err error) {
	s := &Server{install: found, options: o, done: make(chan struct{})}
	s.stop = sync.OnceValue(s.shutDown)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	// A crash in any of these steps costs a directory at worst: the watchdog removes it, or else the next sweep.
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
	if s.host, err = s.keep.link(o, s.dir, s.who); err != nil { // not before: another server may hold the cluster
		return nil, err
	}
	return s, s.keep.complete(o.Durable)
}

// open takes the directory, its lock, the watchdog and, if there is one, the data directory to keep.
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

// launch starts postgres itself, not pg_ctl, so that its process id is ours to wait for.
func (s *Server) launch(o Options) error {
	log, err := os.Create(s.logFile()) // never our own stdout: go test would wait for the server to close it
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

// URL is the connection string of a database on the server, as in postgres://postgres@/NAME?host=DIR. It names the
// port too, so that PGPORT and its like in the environment change nothing. Of a kept cluster it is the same at each start.
func (s *Server) URL(database string) string {
	q := url.Values{"host": {s.host}, "port": {port}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database, RawQuery: Settings(q)}
	return u.String()
}

// Settings is the query of a connection string. A space is %20 there: PostgreSQL and pgx read a + as itself.
func Settings(q url.Values) string { return strings.ReplaceAll(q.Encode(), "+", "%20") }

// PID is the process id of the server.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Dir is the directory of the socket and the log. It is gone after Stop.
func (s *Server) Dir() string { return s.dir }

// DataDir is the directory of the cluster: Options.DataDir if that was set, else one inside Dir.
func (s *Server) DataDir() string { return s.data }

// BinDir is where the server's programs are; pgbench may be among them.
func (s *Server) BinDir() string { return s.bin }

// Version is the server's own, as in "15.18".
func (s *Server) Version() string { return s.version.text }

// Major is the major version, as in 15.
func (s *Server) Major() int { return s.version.major }

// Done is closed once the server has exited, be it by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop stops the server and removes what is not to be kept. It waits up to 20 s for a throwaway server and up to a
// minute for one that writes its checkpoint. Later calls return the result of the first.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) shutDown() error {
	if err := s.halt(); err != nil {
		return err // the watchdog goes on trying when we end
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

// halt ends the server process: SIGQUIT where nothing is to be kept, SIGINT and its checkpoint where something is.
// There is no SIGKILL to follow: it would leave the System V segment behind, and macOS has few.
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
