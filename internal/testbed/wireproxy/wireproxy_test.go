package wireproxy_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

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
