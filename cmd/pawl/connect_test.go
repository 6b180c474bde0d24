package main

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/postgres"
)

// at changes a URL to another server, user or database.
func at(t *testing.T, base string, change func(u *url.URL, q url.Values)) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	change(u, q)
	u.RawQuery = q.Encode()
	return u.String()
}

// closedPort is an address of this machine without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// strict starts a server where role locked needs its password, and returns its URL.
func strict(t *testing.T) string {
	t.Helper()
	hba := filepath.Join(shortDir(t), "hba.conf")
	if err := os.WriteFile(hba, []byte("local all barred reject\nlocal all locked scram-sha-256\nlocal all all trust\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	server, err := postgres.Start(t.Context(), postgres.Options{RAM: true, Settings: map[string]string{"hba_file": hba}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	exec1(t, server.URL("postgres"), "create role locked login password '"+secret+"'; create role meek login; create role barred login")
	return server.URL("postgres")
}

// pgx's error of several lines, with every address it tried, becomes one line with the next step.
func TestConnect_Unreachable(t *testing.T) {
	t.Parallel()
	address := closedPort(t)
	for name, c := range map[string]struct{ url, want string }{
		"port":           {"postgres://u:" + secret + "@" + address + "/d", "cannot reach " + address + ": connection refused"},
		"port, no TLS":   {"postgres://u:" + secret + "@" + address + "/d?sslmode=disable", "cannot reach " + address + ": connection refused"},
		"socket":         {"postgres://u:" + secret + "@/d?host=/nowhere", "cannot reach /nowhere/.s.PGSQL.5432: no such file or directory"},
		"host name":      {"postgres://u:" + secret + "@no-such-host.invalid/d", "cannot reach no-such-host.invalid:5432: this host name is not known"},
		"not PostgreSQL": {"postgres://u:" + secret + "@" + garbage(t) + "/d?sslmode=disable", "cannot reach 127.0.0.1:"},
		"silent":         {"postgres://u:" + secret + "@" + silent(t) + "/d?connect_timeout=1", "no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFailure(t, pawl(t, c.url, "migrate", "status"), 1, c.want, "start one with: pawl dev postgres")
		})
	}
}

func TestConnect_Refused(t *testing.T) {
	t.Parallel()
	base := strict(t)
	user := func(user *url.Userinfo) string {
		return at(t, base, func(u *url.URL, _ url.Values) { u.User = user })
	}
	mustPawl(t, user(url.UserPassword("locked", secret)), "migrate", "status")
	wantFailure(t, pawl(t, user(url.UserPassword("locked", "no-"+secret)), "migrate", "up"), 1,
		`refused user "locked": password authentication failed`, "correct the user and the password")
	wantFailure(t, pawl(t, user(url.User("nobody_here")), "migrate", "up"), 1,
		`role "nobody_here" does not exist`, "correct the user and the password")
	wantFailure(t, pawl(t, user(url.User("barred")), "migrate", "up"), 1, `refused user "barred"`, "server's pg_hba.conf")
	missing := at(t, base, func(u *url.URL, _ url.Values) { u.Path = "/missing" })
	wantFailure(t, pawl(t, missing, "migrate", "up"), 1, `there is no database "missing"`, `create database "missing"`)

	exec1(t, base, "revoke connect on database postgres from public")
	wantFailure(t, pawl(t, user(url.User("meek")), "migrate", "status"), 1,
		"permission denied for database", `grant connect, create on database "postgres" to "meek"`)
}

// If a server has no TLS, the advice is not to start it.
func TestConnect_NoTLS(t *testing.T) {
	t.Parallel()
	address := listen(t, func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, 8)) // the request for TLS
		_, _ = conn.Write([]byte("N"))
		_ = conn.Close()
	})
	wantFailure(t, pawl(t, "postgres://u:"+secret+"@"+address+"/d?sslmode=require", "migrate", "up"), 1,
		"no TLS connection to "+address, "correct sslmode")
}

// A role without the right to create schemas gets the grant to ask the owner for. One progress line
// precedes the error.
func TestUp_PermissionDenied(t *testing.T) {
	t.Parallel()
	meek := at(t, strict(t), func(u *url.URL, _ url.Values) { u.User = url.User("meek") })
	wantFailure(t, afterProgress(t, pawl(t, meek, "migrate", "up")), 1,
		`user "meek": permission denied for database postgres`, `grant connect, create on database "postgres" to "meek"`)
}

// garbage listens and responds with something that is not PostgreSQL.
func garbage(t *testing.T) string {
	t.Helper()
	return listen(t, func(conn net.Conn) {
		_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		_ = conn.Close()
	})
}

// silent listens and never responds.
func silent(t *testing.T) string {
	t.Helper()
	return listen(t, func(conn net.Conn) { t.Cleanup(func() { _ = conn.Close() }) })
}

func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return listener.Addr().String()
}
