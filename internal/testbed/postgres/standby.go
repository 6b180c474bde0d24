package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby starts a server that replicates s by streaming. name is for synchronous_standby_names.
// The standby is a throwaway copy of the cluster, made while s runs, with the settings of s. s must
// have wal_level replica, PostgreSQL's default, and version 15 or newer. Stop it before or after s.
func (s *Server) Standby(ctx context.Context, name string) (_ *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	o := s.options
	o.DataDir, o.BinDir = "", s.bin
	b := &Server{install: s.install, options: o, done: make(chan struct{})}
	b.stop = sync.OnceValue(b.shutDown)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("postgres: standby: %w", err), b.Stop())
		}
	}()
	if err := b.open(o); err != nil {
		return nil, err
	}
	if err := s.backup(ctx, b.data, name); err != nil {
		return nil, err
	}
	if err := b.launch(o); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	return b, b.until(ctx, "select exists (select from pg_stat_wal_receiver as r where r.status = 'streaming')")
}

// Cut stops a standby from receiving. Later commits of its primary are not replicated.
func (s *Server) Cut(ctx context.Context) error {
	if err := s.exec(ctx, "alter system set primary_conninfo = ''", "select pg_reload_conf()"); err != nil {
		return err
	}
	return s.until(ctx, "select not exists (select from pg_stat_wal_receiver)")
}

// Join makes a standby receive again after [Server.Cut].
func (s *Server) Join(ctx context.Context) error {
	if err := s.exec(ctx, "alter system reset primary_conninfo", "select pg_reload_conf()"); err != nil {
		return err
	}
	return s.until(ctx, "select exists (select from pg_stat_wal_receiver as r where r.status = 'streaming')")
}

// Promote makes a standby a primary with the WAL that it has received.
func (s *Server) Promote(ctx context.Context) error {
	return s.exec(ctx, "select pg_promote()")
}

// backup copies the cluster of s to data and configures it as a standby.
func (s *Server) backup(ctx context.Context, data, name string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range []string{"alter system set wal_keep_size = '256MB'", "select pg_reload_conf()", "select pg_backup_start('standby', true)"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := copyRunning(s.data, data, s.who); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, "select b.labelfile from pg_backup_stop(false) as b").Scan(&label); err != nil {
		return err
	}
	quoted := "'" + strings.ReplaceAll(s.dir, "'", `\'`) + "'"
	from := fmt.Sprintf("host=%s port=%s user=%s application_name=%s", quoted, port, superuser, name)
	// Not in postgresql.auto.conf, because Cut overrides the setting there.
	main := filepath.Join(data, "postgresql.conf")
	text, err := os.ReadFile(main)
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "\nprimary_conninfo = '%s'\n", strings.ReplaceAll(from, "'", "''"))
	for file, content := range map[string]string{main: string(text), filepath.Join(data, "backup_label"): label, filepath.Join(data, "standby.signal"): ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
		if err := s.who.own(file); err != nil {
			return err
		}
	}
	return nil
}

// copyRunning copies a cluster in use, between pg_backup_start and pg_backup_stop. Files may appear
// and disappear meanwhile.
func copyRunning(from, to string, who identity) error {
	gone := func(err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return gone(err)
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case name == "postmaster.pid" || name == "postmaster.opts" || filepath.Dir(name) == "pg_wal":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		case !entry.Type().IsRegular():
			return nil
		default:
			if _, err := copyFile(path, target); err != nil {
				return gone(err)
			}
		}
		return who.own(target)
	})
}

func (s *Server) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// until repeats a query until its result is true.
func (s *Server) until(ctx context.Context, question string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		var is bool
		if err := conn.QueryRow(ctx, question).Scan(&is); err != nil {
			return fmt.Errorf("waiting for %q: %w%s", question, err, s.logTail())
		}
		if is {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q: %w%s", question, ctx.Err(), s.logTail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
