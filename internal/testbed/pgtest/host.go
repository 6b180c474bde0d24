package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
)

// override is the environment variable that names an existing server to use.
const override = "PAWL_TEST_DATABASE_URL"

// settings of the private server allow many parallel tests and keep vacuum workers from blocking a
// clone.
var settings = map[string]string{"max_connections": "200", "autovacuum_naptime": "10min"}

// A host is the server that all tests of this process share.
type host struct {
	private     bool // started by this process: fsync is off
	major       int
	maintenance string
	url         func(database string) string

	creators chan *admin // two, because a third concurrent CREATE DATABASE gains little
	// droppers are separate, because a drop may wait for a connection that a test left open.
	droppers  chan *admin
	templates sync.Map // name -> func() error
}

var server = sync.OnceValues(func() (*host, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if given := os.Getenv(override); given != "" {
		return sharedHost(ctx, given)
	}
	return privateHost()
})

// privateHost starts a server. Its watchdog stops it when this process ends in any way.
func privateHost() (*host, error) {
	s, err := postgres.Start(context.Background(), postgres.Options{RAM: true, Settings: settings})
	if err != nil {
		return nil, fmt.Errorf("this test needs PostgreSQL: %w", err)
	}
	return newHost(&host{private: true, major: s.Major(), maintenance: "postgres", url: s.URL}), nil
}

// sharedHost checks and uses the server that the environment variable names.
func sharedHost(ctx context.Context, given string) (*host, error) {
	fail := func(what, next string) (*host, error) {
		return nil, fmt.Errorf("%s: %s (%s)", override, what, next)
	}
	base, err := url.Parse(given)
	if err != nil || base.Scheme != "postgres" && base.Scheme != "postgresql" {
		return fail("it is not a URL of a PostgreSQL server", "write postgres://user:password@host:5432/database, or unset it to use a private server")
	}
	config, err := pgx.ParseConfig(given)
	if err != nil {
		return fail(oneLine(err), "write postgres://user:password@host:5432/database, or unset it to use a private server")
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && (pg.Code == "28P01" || pg.Code == "28000") {
			return fail(pg.Message, "correct the user and password in it")
		}
		return fail("cannot connect: "+lastLine(err), "start that server, correct the URL, or unset it to use a private server")
	}
	defer conn.Close(ctx)
	var creates bool
	var number int
	err = conn.QueryRow(ctx, `
		select r.rolsuper or r.rolcreatedb, current_setting('server_version_num')::int
		  from pg_catalog.pg_roles as r
		 where r.rolname = current_user`).Scan(&creates, &number)
	if err != nil {
		return fail(oneLine(err), "it must be a direct connection to PostgreSQL")
	}
	if !creates {
		return fail("role "+config.User+" may not create databases", "alter role "+pgx.Identifier{config.User}.Sanitize()+" createdb")
	}
	at := func(database string) string { return withDatabase(base, database) }
	return newHost(&host{major: number / 10000, maintenance: config.Database, url: at}), nil
}

// withDatabase returns base with another database name, in the path and in the query.
func withDatabase(base *url.URL, database string) string {
	u := *base
	u.Path = "/" + database
	q := u.Query()
	q.Del("dbname")
	q.Del("database")
	u.RawQuery = postgres.Settings(q)
	return u.String()
}

func newHost(s *host) *host {
	fill := func(n int) chan *admin {
		pool := make(chan *admin, n)
		for range n {
			pool <- &admin{url: s.url(s.maintenance)}
		}
		return pool
	}
	s.creators, s.droppers = fill(2), fill(1)
	return s
}

// An admin is a connection to the maintenance database. It connects at first use and reconnects if
// the connection broke.
type admin struct {
	url  string
	conn *pgx.Conn
}

// administer calls do with one of the pool's connections.
func administer(ctx context.Context, pool chan *admin, do func(*pgx.Conn) error) error {
	var a *admin
	select {
	case a = <-pool:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { pool <- a }()
	if a.conn == nil || a.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, a.url)
		if err != nil {
			return errors.New(oneLine(err))
		}
		a.conn = conn
	}
	return do(a.conn)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// lastLine returns the last line of a connect error. pgx lists every attempt.
func lastLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
