package flow_test

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
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// Through a pooler in transaction mode a flow does all it does elsewhere, landing, retries and batches included, if pgx keeps no named
// statements (trap T71).
func TestT71_ThroughAPooler(t *testing.T) {
	t.Parallel()
	program := pgbouncer(t)
	for _, mode := range []string{"exec", "cache_describe", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			direct := pawltest.URL(t, effects)
			b := setupOn(t, pooled(t, program, direct)+"&default_query_exec_mode="+mode)
			b.config.Presence = job.Presence{URL: direct}
			var failed sync.Map
			b.config.Handler = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
				if err := apply(ctx, tx, d); err != nil {
					return err
				}
				if _, before := failed.LoadOrStore(d.Key, true); !before && strings.HasSuffix(d.Key, "7") {
					return errors.New("not now")
				}
				return nil
			}
			for n := range 200 {
				b.source.Send(order(n), order(n), order(n))
			}
			b.consume()
			b.wantEffects(200)
			b.batches(nothing)
			for n := range 200 {
				b.source.Send(order(n), order(1000+n))
			}
			b.consume()
			b.wantEffects(400)
			if n := b.counters.Count(pawl.EventRetryable); n != 20 {
				t.Errorf("%d deliveries landed, want 20", n)
			}
			if n := b.counters.Count(pawl.EventTrouble); n != 0 {
				t.Errorf("trouble %d times", n)
			}
		})
	}
}

// pgbouncer finds the program, or skips the test and says why.
func pgbouncer(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	t.Skip("did not run: pgbouncer is neither on the PATH nor in /usr/sbin (apt-get install pgbouncer)")
	return ""
}

// pooled starts a pooler with fewer sessions than the pool has connections, and returns the database's URL through it.
func pooled(t *testing.T, program, direct string) string {
	t.Helper()
	server, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pooler") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	to := fmt.Sprintf("host=%s port=%d user=%s", server.Host, server.Port, server.User)
	if server.Password != "" {
		to += " password=" + server.Password
	}
	settings := filepath.Join(dir, "settings.ini")
	if err := os.WriteFile(settings, fmt.Appendf(nil, `[databases]
* = %s
[pgbouncer]
unix_socket_dir = %s
listen_port = %d
auth_type = any
pool_mode = transaction
default_pool_size = 6
`, to, dir, server.Port), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "--quiet", settings)
	if who := unprivileged(t, server.Host); who != nil { // it refuses to run as root
		c.SysProcAttr = &syscall.SysProcAttr{Credential: who}
		for _, path := range []string{dir, settings} {
			if err := os.Chown(path, int(who.Uid), int(who.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	through := fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", url.PathEscape(server.User), server.Database, url.QueryEscape(dir), server.Port)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := pgx.Connect(t.Context(), through)
		if err == nil {
			_ = conn.Close(t.Context())
			return through
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pooler did not start: %v", err)
		}
	}
}

// unprivileged says as whom to run what must not run as root: the owner of the server's socket, who may use it; nil for oneself.
func unprivileged(t *testing.T, host string) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	if !strings.HasPrefix(host, "/") {
		return &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	socket, err := os.Stat(host)
	if err != nil {
		t.Fatal(err)
	}
	owner := socket.Sys().(*syscall.Stat_t)
	return &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
}
