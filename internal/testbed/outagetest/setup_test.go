// Package outagetest breaks private servers: connections become read-only, statements crash the
// server, tables and rows are locked, limits are reached. It checks which attempts are charged, and
// that work continues afterwards.
package outagetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/migrate"
)

// A bed is a private server with Pawl's schema and a table for effects.
type bed struct {
	*testing.T
	server *postgres.Server
	admin  *pgx.Conn
}

func setup(t *testing.T, settings map[string]string, extra string) *bed {
	t.Helper()
	b := &bed{T: t}
	server, err := postgres.Start(t.Context(), postgres.Options{RAM: true, Settings: settings})
	b.must(err)
	t.Cleanup(func() { _ = server.Stop() })
	b.server = server
	b.connect()
	_, err = migrate.Up(t.Context(), b.admin, nil)
	b.must(err)
	b.exec("create table effect (key text not null)")
	if extra != "" {
		b.exec(extra)
	}
	return b
}

// connect opens the admin connection, also after a crash of the server.
func (b *bed) connect() {
	b.Helper()
	patience.Until(b, "the server takes connections", func() bool {
		conn, err := pgx.Connect(b.Context(), b.server.URL("postgres"))
		if err == nil {
			_, err = conn.Exec(b.Context(), "set default_transaction_read_only = off")
		}
		b.admin = conn
		return err == nil
	})
	conn := b.admin
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) exec(statement string, args ...any) {
	b.Helper()
	_, err := b.admin.Exec(b.Context(), statement, args...)
	b.must(err)
}

// count runs a query on the admin connection, which is reopened if it was lost.
func (b *bed) count(query string, args ...any) (n int) {
	b.Helper()
	for b.admin.QueryRow(b.Context(), query, args...).Scan(&n) != nil {
		if b.Context().Err() != nil || !b.admin.IsClosed() {
			b.Fatal(b.admin.QueryRow(b.Context(), query, args...).Scan(&n))
		}
		b.connect()
	}
	return n
}

func (b *bed) until(what, query string, want int) {
	b.Helper()
	patience.Until(b, what, func() bool { return b.count(query) == want })
}

// pool returns a pool with a number of connections. connected, if not nil, is called for each new
// connection.
func (b *bed) pool(conns int32, connected func(ctx context.Context, c *pgconn.PgConn) error) *pgxpool.Pool {
	b.Helper()
	config, err := pgxpool.ParseConfig(b.server.URL("postgres"))
	b.must(err)
	config.MaxConns = conns
	config.ConnConfig.AfterConnect = connected
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	b.must(err)
	b.Cleanup(pool.Close)
	return pool
}

// poolOf returns a pool of another login.
func (b *bed) poolOf(login string, conns int32) *pgxpool.Pool {
	b.Helper()
	config, err := pgxpool.ParseConfig(b.server.URL("postgres"))
	b.must(err)
	config.MaxConns, config.ConnConfig.User = conns, login
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	b.must(err)
	b.Cleanup(pool.Close)
	return pool
}

// goes calls run until the test ends.
func (b *bed) goes(run func(ctx context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Errorf("it ended with %v", err)
		}
	})
}

// starts runs a consumer or a worker until the test ends, and returns when it is ready. Run would
// return an error if the test took the database away before.
func (b *bed) starts(part interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{}
}) {
	b.Helper()
	b.goes(part.Run)
	patience.Receive(b, "it is ready", part.Ready())
}

// worker runs a worker of the queue until the test ends.
func (b *bed) worker(pool *pgxpool.Pool, hooks pawl.Hooks, queue job.Queue, handlers ...job.Handler) {
	b.Helper()
	w, err := job.NewWorker(pool, job.Config{Queues: []job.Queue{queue}, Hooks: hooks, Lease: 5 * time.Second,
		Backoff: job.Backoff{Base: 50 * time.Millisecond, Max: 200 * time.Millisecond}, Handlers: handlers})
	b.must(err)
	b.starts(w)
}

func apply(ctx context.Context, tx pgx.Tx, key string) error {
	_, err := tx.Exec(ctx, "insert into effect values ($1)", key)
	return err
}

// A demoted has connections that become read-only, as after a failover that keeps connections.
type demoted struct {
	*bed
	healed atomic.Bool // new connections lead to the primary
}

func (d *demoted) connected(ctx context.Context, c *pgconn.PgConn) error {
	if !d.healed.Load() {
		return nil
	}
	return c.Exec(ctx, "set default_transaction_read_only = off").Close()
}

// fill opens all connections of a pool.
func (d *demoted) fill(pool *pgxpool.Pool) {
	d.Helper()
	for range pool.Config().MaxConns / 2 {
		conn, err := pool.Acquire(d.Context())
		d.must(err)
		defer conn.Release()
	}
}

// demote makes all existing connections read-only.
func (d *demoted) demote() {
	d.Helper()
	d.healed.Store(true)
	d.exec("alter system set default_transaction_read_only = on")
	probe, err := pgx.Connect(d.Context(), d.server.URL("postgres"))
	d.must(err)
	defer probe.Close(d.Context())
	d.exec("select pg_reload_conf()")
	patience.Row(d, probe, "the setting is read", "select current_setting('default_transaction_read_only') = 'on'")
}
