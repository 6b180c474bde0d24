package wireproxy_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
)

// A server on a Unix socket trusts all who reach it, so its proxy must not admit other local users.
// The proxy listens on no port, and its directory is closed to them and removed with it. The test
// is not parallel because it sets TMPDIR.
func TestOpen_KeepsOtherUsersOut(t *testing.T) {
	server, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	for name, temp := range map[string]string{"as it is": os.TempDir(), "too long for a socket": filepath.Join(t.TempDir(), strings.Repeat("x", 90))} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(temp, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("TMPDIR", temp)
			proxy, through, err := wireproxy.Open(server.URL("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			conn, err := pgx.Connect(t.Context(), through)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			if err := conn.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			dir := conn.Config().Host
			if !filepath.IsAbs(dir) {
				t.Fatalf("it listens at %s:%d, where each user of the machine is let in", dir, conn.Config().Port)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("others can enter %s: %v, %v", dir, info, err)
			}
			proxy.Close()
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its directory is left: %v", err)
			}
		})
	}
}

// A held reply: the COMMIT is durable, and the client waits for its reply until the server
// disconnects. Then it gets an error, and the proxy has no open connection.
func TestHoldReply(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	proxy, through, err := wireproxy.Open(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	direct, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close(context.Background())
	if _, err := direct.Exec(t.Context(), "create table t (id int)"); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), through)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	proxy.OnCommit(func() wireproxy.Cut { return wireproxy.HoldReply })
	committed := make(chan error, 1)
	go func() {
		committed <- pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), "insert into t values (1)")
			return err
		})
	}()
	patience.Row(t, direct, "the row is committed", "select count(*) = 1 from t")
	patience.Watch(200*time.Millisecond, func() {
		select {
		case err := <-committed:
			t.Fatalf("the client got its reply: %v", err)
		default:
		}
	})
	if n := proxy.Open(); n != 1 {
		t.Errorf("%d open connections", n)
	}
	if _, err := direct.Exec(t.Context(), "select pg_terminate_backend($1)", conn.PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err == nil {
		t.Error("no error")
	}
	patience.Until(t, "the connection is closed", func() bool { return proxy.Open() == 0 })
}
