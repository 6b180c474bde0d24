package pgtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const poll = 5 * time.Millisecond

var templateName = regexp.MustCompile(`^[a-z0-9_]{1,40}$`)

// template creates the template database if needed and returns its name. It does so once per
// process.
func (s *host) template(ctx context.Context, tpl Template) (string, error) {
	if !templateName.MatchString(tpl.Name) {
		return "", fmt.Errorf("template name %q: want 1 to 40 of a-z, 0-9 and underscore", tpl.Name)
	}
	name := "pawl_template_" + tpl.Name
	once, _ := s.templates.LoadOrStore(name, sync.OnceValue(func() error {
		if err := s.ensure(ctx, name, tpl.Apply); err != nil {
			return fmt.Errorf("template %s: %w", tpl.Name, err)
		}
		return nil
	}))
	return name, once.(func() error)()
}

// ensure builds the template unless it exists. It polls for the lock: a session that blocks in
// pg_advisory_lock holds a snapshot. A CREATE INDEX CONCURRENTLY in another session's Apply would
// wait for that snapshot and deadlock.
func (s *host) ensure(ctx context.Context, name string, apply func(context.Context, *pgx.Conn) error) error {
	return administer(ctx, s.creators, func(admin *pgx.Conn) error {
		for {
			done, err := complete(ctx, admin, name)
			if done || err != nil {
				return err
			}
			var locked bool
			if err := admin.QueryRow(ctx, "select pg_try_advisory_lock(hashtextextended($1, 0))", name).Scan(&locked); err != nil {
				return err
			}
			if locked {
				break
			}
			if err := wait(ctx); err != nil {
				return err
			}
		}
		defer func() {
			_, _ = admin.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock(hashtextextended($1, 0))", name)
		}()
		if done, err := complete(ctx, admin, name); done || err != nil {
			return err
		}
		return s.build(ctx, admin, name, apply)
	})
}

// complete reports whether build has finished, which sets datistemplate and datallowconn last.
func complete(ctx context.Context, admin *pgx.Conn, name string) (done bool, err error) {
	err = admin.QueryRow(ctx, `
		select exists (
		       select from pg_catalog.pg_database as d
		        where d.datname = $1 and d.datistemplate and not d.datallowconn)`, name).Scan(&done)
	return done, err
}

// build creates the template under the lock. If the process dies before the last statement, the
// next process rebuilds it.
func (s *host) build(ctx context.Context, admin *pgx.Conn, name string, apply func(context.Context, *pgx.Conn) error) error {
	id := pgx.Identifier{name}.Sanitize()
	if _, err := admin.Exec(ctx, "drop database if exists "+id+" with (force)"); err != nil {
		return err
	}
	if _, err := admin.Exec(ctx, "create database "+id+" template template0"); err != nil {
		return err
	}
	if err := s.apply(ctx, name, apply); err != nil {
		_, _ = admin.Exec(context.WithoutCancel(ctx), "drop database if exists "+id+" with (force)")
		return err
	}
	if err := deserted(ctx, admin, name); err != nil {
		return err
	}
	_, err := admin.Exec(ctx, "alter database "+id+" is_template true allow_connections false")
	return err
}

func (s *host) apply(ctx context.Context, name string, apply func(context.Context, *pgx.Conn) error) error {
	if apply == nil {
		return nil
	}
	conn, err := pgx.Connect(ctx, s.url(name))
	if err != nil {
		return err
	}
	return errors.Join(apply(ctx, conn), conn.Close(ctx))
}

// clone creates a database from a template. Copying files is three times faster than writing WAL,
// but makes two checkpoints. So it is used only on the private server, where fsync is off, and from
// PostgreSQL 15, which has the option.
func (s *host) clone(ctx context.Context, name, source string) error {
	create := "create database " + pgx.Identifier{name}.Sanitize() + " template " + pgx.Identifier{source}.Sanitize()
	if s.private && s.major >= 15 {
		create += " strategy file_copy"
	}
	return administer(ctx, s.creators, func(admin *pgx.Conn) error {
		_, err := admin.Exec(ctx, create)
		return err
	})
}

// drop removes a test's database. DROP DATABASE sleeps for 100 ms if a backend is still exiting, so
// drop waits for backends first. A connection that a test left open is terminated after two
// seconds.
func (s *host) drop(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = administer(ctx, s.droppers, func(admin *pgx.Conn) error {
		patience, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_ = deserted(patience, admin, name)
		_, err := admin.Exec(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)")
		return err
	})
}

// deserted returns when the database has no backend.
func deserted(ctx context.Context, admin *pgx.Conn, name string) error {
	for {
		var busy bool
		err := admin.QueryRow(context.WithoutCancel(ctx), `
			select exists (select from pg_catalog.pg_stat_activity as a where a.datname = $1)`, name).Scan(&busy)
		if !busy || err != nil {
			return err
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(poll):
		return nil
	}
}
