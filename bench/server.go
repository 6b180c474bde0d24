package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/postgres"
)

// A host is the server that all contenders share in turn.
type host struct {
	server    *postgres.Server
	admin     *pgx.Conn
	templates map[string]bool
	made      int
	report    func(string) // prints a progress line
	restless  int          // rounds that started although others were busy
}

// startHost starts the server. A server that is not durable is for the smoke test only.
func startHost(ctx context.Context, durable bool) (*host, error) {
	server, err := postgres.Start(ctx, postgres.Options{Durable: durable})
	if err != nil {
		return nil, err
	}
	admin, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		_ = server.Stop()
		return nil, err
	}
	h := &host{server: server, admin: admin, templates: map[string]bool{}, report: func(string) {}}
	if durable {
		err = h.warmUp(ctx)
	}
	if err != nil {
		h.stop()
		return nil, err
	}
	return h, nil
}

// warmUp makes the server create its WAL files, some 300 MB. Otherwise the first contender that
// writes would pay for them.
func (h *host) warmUp(ctx context.Context) error {
	for _, statement := range []string{"create table warm as select n, repeat('x', 100) from generate_series(1, 2000000) as n", "checkpoint", "drop table warm", "checkpoint"} {
		if _, err := h.admin.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) stop() {
	_ = h.admin.Close(context.Background())
	_ = h.server.Stop()
}

// A bed is one new database with a contender in it.
type bed struct {
	host *host
	contender
	name, url string
	pool      *pgxpool.Pool
}

func (h *host) bed(ctx context.Context, s system) (*bed, error) {
	if err := h.template(ctx, s); err != nil {
		return nil, fmt.Errorf("template %s: %w", s.name, err)
	}
	h.made++
	b := &bed{host: h, name: fmt.Sprintf("bench_%s_%d", s.name, h.made)}
	b.url = h.server.URL(b.name)
	if _, err := h.admin.Exec(ctx, "create database "+b.name+" template bench_"+s.name); err != nil {
		return nil, err
	}
	var err error
	if b.pool, err = openPool(ctx, b.url); err != nil {
		return nil, err
	}
	b.contender, err = s.open(b.pool)
	return b, err
}

// template installs a system once. Each bed is a copy.
func (h *host) template(ctx context.Context, s system) error {
	if h.templates[s.name] {
		return nil
	}
	if _, err := h.admin.Exec(ctx, "create database bench_"+s.name); err != nil {
		return err
	}
	pool, err := openPool(ctx, h.server.URL("bench_"+s.name))
	if err != nil {
		return err
	}
	if err = s.install(ctx, pool); err == nil {
		_, err = pool.Exec(ctx, createEffect)
	}
	pool.Close()
	if err != nil {
		// The next round tries again.
		_, _ = h.admin.Exec(ctx, "drop database bench_"+s.name+" with (force)")
	}
	h.templates[s.name] = err == nil
	return err
}

func (b *bed) close(ctx context.Context) {
	if own, ok := b.contender.(io.Closer); ok {
		_ = own.Close()
	}
	b.pool.Close()
	_, _ = b.host.admin.Exec(ctx, "drop database "+b.name+" with (force)")
}

// ready equalises the start of every measurement: fresh statistics, a checkpoint, open connections.
func (b *bed) ready(ctx context.Context) error {
	if _, err := b.pool.Exec(ctx, "analyze"); err != nil {
		return err
	}
	if _, err := b.host.admin.Exec(ctx, "checkpoint"); err != nil {
		return err
	}
	conns := make([]*pgxpool.Conn, 0, poolConns)
	defer func() {
		for _, c := range conns {
			c.Release()
		}
	}()
	for range poolConns {
		c, err := b.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	return nil
}

func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolConns
	return pgxpool.NewWithConfig(ctx, config)
}

// settings describes the machine, the programs and the server.
func (h *host) settings(ctx context.Context) (Settings, error) {
	s := Settings{At: now(), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Pgx: version("github.com/jackc/pgx/v5"), River: version("github.com/riverqueue/river"),
		PostgreSQL: h.server.Version(), PoolConns: poolConns, FileSystem: fileSystem(h.server.DataDir())}
	s.Commit, s.Dirty = commit()
	s.LoadAverage = loadAverage()
	err := h.admin.QueryRow(ctx, `
		select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
		       current_setting('shared_buffers'), current_setting('max_wal_size')`).
		Scan(&s.Fsync, &s.SynchronousCommit, &s.FullPageWrites, &s.SharedBuffers, &s.MaxWALSize)
	return s, err
}

// loadAverage returns the load of the last 1, 5 and 15 minutes, or "" without /proc.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}

// commit asks git, because go run does not stamp its program with the commit.
func commit() (id string, dirty bool) {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown", false
	}
	status, _ := exec.Command("git", "status", "--porcelain").Output()
	return strings.TrimSpace(string(out)), len(status) > 0
}

// fileSystem returns the type of the file system of dir, from df.
func fileSystem(dir string) string {
	out, err := exec.Command("df", "-PT", dir).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) < 2 || len(strings.Fields(lines[1])) < 2 {
		return "unknown"
	}
	return strings.Fields(lines[1])[1]
}
