package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// startServer starts a server and stops it after the test.
func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// query runs one statement on a new connection and returns its only value as text.
func query(t *testing.T, s *Server, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(values, ",")
}

// shortDir returns a temporary directory whose path is short enough for a socket and that the
// server can reach. t.TempDir has neither property.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pawl-t-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// sharedDir returns a shortDir that the server's user may write to.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	must(t, os.Chmod(dir, 0o777))
	return dir
}

// running reports whether process pid is alive and not a zombie. Zombies stay if the first process
// does not reap.
func running(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return false
	}
	cmdline, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline"))
	return err != nil && !errors.Is(err, os.ErrNotExist) || len(cmdline) > 0
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A server answers, is private, and leaves neither process nor directory.
func TestStart_AnswersAndStopLeavesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{RAM: true})
	if got := query(t, s, "select 40 + 2 || ''"); got != "42" {
		t.Errorf("got %s", got)
	}
	if got := query(t, s, "show listen_addresses"); got != "" {
		t.Errorf("listens on %q", got)
	}
	if info, err := os.Stat(s.Dir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
	if got := query(t, s, "show server_version"); !strings.HasPrefix(got, s.Version()) {
		t.Errorf("Version %s, server says %s", s.Version(), got)
	}
	dir, pid := s.Dir(), s.PID()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if exists(dir) || running(pid) {
		t.Errorf("left behind: directory %v, process %v", exists(dir), running(pid))
	}
	<-s.Done()
}

// A test server may lose data if the machine crashes, but never an acknowledged commit when the
// server is killed.
func TestStart_KeepsSynchronousCommitOn(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{})
	for name, want := range map[string]string{"synchronous_commit": "on", "fsync": "off", "full_page_writes": "off"} {
		if got := query(t, s, "show "+name); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
}

// Durable keeps PostgreSQL's default settings.
func TestStart_DurableChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{Durable: true})
	changed := query(t, s, `select name from pg_settings where source = 'command line'
		and name not in ('listen_addresses', 'port', 'unix_socket_directories', 'unix_socket_permissions', 'logging_collector', 'data_directory')`)
	if changed != "" {
		t.Errorf("changed: %s", changed)
	}
	if got := query(t, s, "show wal_segment_size"); got != "16MB" {
		t.Errorf("wal_segment_size = %s", got)
	}
}

func TestStart_AppliesSettingsButStaysPrivate(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{Settings: map[string]string{"max_connections": "37"}})
	if got := query(t, s, "show max_connections"); got != "37" {
		t.Errorf("max_connections = %s", got)
	}
	if _, err := Start(t.Context(), Options{Settings: map[string]string{"listen_addresses": "*"}}); err == nil {
		t.Error("a caller opened the server to the network")
	}
}

// The error of a failed start contains the server's log.
func TestStart_ReturnsTheLogOfAFailedStart(t *testing.T) {
	t.Parallel()
	temp := sharedDir(t)
	_, err := Start(t.Context(), Options{Settings: map[string]string{"no_such_setting": "1"}, tune: tuning{temp: temp}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A cancelled start leaves nothing behind, for a cancel at each of several steps.
func TestStart_GivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	temp, cache := sharedDir(t), sharedDir(t)
	must(t, os.Chmod(cache, 0o755)) // empty, so that initdb runs
	for _, point := range []string{"", prefix + "*", prefix + "*/new/PG_VERSION", prefix + "*/log"} {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			s, err := Start(ctx, Options{tune: tuning{temp: temp, cache: cache}})
			if err == nil { // the start was faster than the cancel
				err = errors.Join(s.Stop(), context.Canceled)
			}
			result <- err
		}()
		patience.Until(t, "reached "+point, func() bool {
			found, _ := filepath.Glob(filepath.Join(temp, point))
			return len(found) > 0
		})
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("at %q: %v", point, err)
		}
		patience.Until(t, "nothing left after "+point, func() bool {
			left, _ := os.ReadDir(temp)
			return len(left) == 0
		})
	}
}

// If two programs start at once with an empty cache, both work and one cluster is stored.
func TestStart_TwiceAtOnceWithAnEmptyCache(t *testing.T) {
	t.Parallel()
	cache := shortDir(t)
	must(t, os.Chmod(cache, 0o755))
	results := make(chan error, 2)
	for range cap(results) {
		go func() {
			s, err := Start(context.Background(), Options{tune: tuning{cache: cache}})
			if err == nil {
				err = s.Stop()
			}
			results <- err
		}()
	}
	must(t, <-results)
	must(t, <-results)
	if stored, _ := filepath.Glob(filepath.Join(cache, "*")); len(stored) != 1 {
		t.Errorf("stored %v, want one cluster", stored)
	}
}

// prune removes unfinished work and unused clusters.
func TestPrune_ForgetsTheUnused(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	for name, age := range map[string]time.Duration{"cluster-a": 31 * 24 * time.Hour, "cluster-b": 24 * time.Hour,
		"cluster-b.1": 2 * time.Hour, "cluster-c.2": time.Minute, "fetch.3": 2 * time.Hour, "postgres-18": 90 * 24 * time.Hour} {
		path := filepath.Join(cache, name)
		must(t, os.Mkdir(path, 0o700))
		must(t, os.Chtimes(path, time.Now().Add(-age), time.Now().Add(-age)))
	}
	prune(cache)
	var left []string
	entries, err := os.ReadDir(cache)
	must(t, err)
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if got := strings.Join(left, " "); got != "cluster-b cluster-c.2 postgres-18" {
		t.Errorf("left %s", got)
	}
}

// Variables for PostgreSQL's clients affect neither the server nor its URL.
func TestURL_IgnoresPGVariables(t *testing.T) {
	out, err := child(t, "answer", "PGPORT=7777", "PGHOST=/nowhere", "PGDATABASE=nothing", "PGUSER=nobody", "LC_ALL=xx_XX").Output()
	if err != nil || string(out) != "42\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
