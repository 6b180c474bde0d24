package consumer_test

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
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/pawltest"
)

// Through a pooler in transaction mode a consumer works fully, with storing, retries and batches,
// if pgx keeps no named statements (trap T71).
func TestT71_ThroughAPooler(t *testing.T) {
	t.Parallel()
	program := pgbouncer(t)
	for _, mode := range []string{"exec", "cache_describe", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			direct := pawltest.URL(t, effects)
			b := setupOn(t, pooled(t, program, direct)+"&default_query_exec_mode="+mode)
			// no errors other than the pooler's
			b.config.Presence, b.form.Lease = job.Presence{URL: direct}, 30*time.Second
			b.config.Hooks = pawl.Join(b.config.Hooks, pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
				var pg *pgconn.PgError
				// timeouts of a slow machine
				if e.Kind == pawl.EventError && errors.As(e.Err, &pg) && pg.Code != "57014" && pg.Code != "55P03" {
					t.Errorf("%s: %v", e.Op, e.Err)
				}
			}})
			var failed sync.Map
			b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
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
				t.Errorf("%d deliveries stored, want 20", n)
			}
		})
	}
}

// Through a pooler in transaction mode a presence lock proves nothing. The worker notices before it
// takes one, reports the next step, and relies on its lease alone. The doctor names the worker. In
// session mode the worker is present.
func TestT71_PresenceThroughAPoolerIsRefusedAndSaid(t *testing.T) {
	t.Parallel()
	program := pgbouncer(t)
	for mode, want := range map[string]bool{"transaction": false, "session": true} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			direct := pawltest.URL(t, effects)
			b := setupOn(t, pooledIn(t, program, direct, mode)+"&default_query_exec_mode=exec")
			said := make(chan error, 1)
			b.config.Hooks = pawl.Join(b.config.Hooks, pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
				if e.Op == "worker.presence" && e.Kind == pawl.EventError {
					select {
					case said <- e.Err:
					default:
					}
				}
			}})
			b.start()
			admin := connectTo(t, direct)
			present := func() (present, reported bool) {
				err := admin.QueryRow(t.Context(), `select coalesce(bool_or(w.presence), false), coalesce(bool_or((w.report ->> 'pooled')::boolean), false)
				  from pawl.worker as w`).Scan(&present, &reported)
				if err != nil {
					t.Fatal(err)
				}
				return present, reported
			}
			if want {
				b.until("present", func() bool { present, _ := present(); return present })
				return
			}
			if err := patience.Receive(t, "a word about a presence that proves nothing", said); !errors.Is(err, conns.ErrPooler) || !strings.Contains(err.Error(), "Presence.URL") {
				t.Errorf("said %v", err)
			}
			b.until("reported", func() bool { _, reported := present(); return reported })
			if present, _ := present(); present {
				t.Error("the worker counts as present")
			}
			d, err := doctor.Diagnose(t.Context(), admin, doctor.Limits{})
			if err != nil || !strings.Contains(fmt.Sprint(d.Findings), "keeps its presence through a pooler") {
				t.Errorf("%v, %v", d.Findings, err)
			}
		})
	}
}

// A pooler is found in each mode that changes sessions, also if it has a single session, for which
// the probe's two connections wait for each other.
func TestT71_PoolersAreFound(t *testing.T) {
	t.Parallel()
	program := pgbouncer(t)
	for name, c := range map[string]struct {
		mode     string
		sessions int
		want     error
	}{
		"transaction":                   {"transaction", 6, conns.ErrPooler},
		"transaction, a single session": {"transaction", 1, conns.ErrPooler},
		"statement":                     {"statement", 6, conns.ErrPooler},
		"statement, a single session":   {"statement", 1, conns.ErrPooler},
		"session":                       {"session", 6, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through := pooledOf(t, program, pawltest.URL(t), c.mode, c.sessions)
			connect := func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, through) }
			if _, err := conns.CheckPooler(t.Context(), connectTo(t, through), connect); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// With pgx's default a pooler in transaction mode answers 42P05 or 26000. The error names the next
// step.
func TestT71_AStatementThatThePoolerLostNamesTheSetting(t *testing.T) {
	t.Parallel()
	through := pooledIn(t, pgbouncer(t), pawltest.URL(t, effects), "transaction")
	first, second := connectTo(t, through), connectTo(t, through)
	if err := migrate.Check(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a statement that another client prepared": migrate.Check(t.Context(), second),
		"a migration": func() error { _, err := migrate.Up(t.Context(), second, nil); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "direct") || !strings.Contains(err.Error(), "pooler") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := doctor.Diagnose(t.Context(), second, doctor.Limits{}); err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("doctor: %v", err)
	}
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// pgbouncer finds the program, or skips the test with the reason.
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

// pooled is pooledIn transaction mode.
func pooled(t *testing.T, program, direct string) string {
	return pooledIn(t, program, direct, "transaction")
}

// pooledIn starts a pooler with fewer sessions than the pool has, and returns its database URL.
func pooledIn(t *testing.T, program, direct, mode string) string {
	t.Helper()
	return pooledOf(t, program, direct, mode, map[string]int{"transaction": 6, "session": 40}[mode])
}

// pooledOf starts a pooler with a number of sessions, and returns its database URL.
func pooledOf(t *testing.T, program, direct, mode string, sessions int) string {
	t.Helper()
	server, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pooler") // the path of t.TempDir is too long for a socket
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
pool_mode = %s
default_pool_size = %d
`, to, dir, server.Port, mode, sessions), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "--quiet", settings)
	if who := unprivileged(t, server.Host); who != nil { // pgbouncer refuses to run as root
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
	patience.Until(t, "the pooler answers", func() bool {
		conn, err := pgx.Connect(t.Context(), through)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	})
	return through
}

// unprivileged returns the user for a program that must not run as root: the owner of the server's
// socket, so that it may connect. Nil is the current user.
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
