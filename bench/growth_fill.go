package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A filling fills a table with rows as Pawl leaves them. TestFilling compares them.
type filling struct {
	table  string // in schema pawl
	octets int64  // approximate size of a row with its index entries
	insert string // inserts rows $1 + 1 to $2 of $3, oldest first
}

// fillInbox inserts deliveries that took effect in the last 28 days, a consumer's default
// retention.
var fillInbox = filling{table: "inbox", octets: 260, insert: `
insert into pawl.inbox (consumer, key, hash, received_at, processed_at)
select 'bench', k.key, sha256(k.key::bytea), k.at, k.at + interval '2 milliseconds'
  from (select gen_random_uuid()::text as key, now() - interval '28 days' * (1 - g.n::float8 / $3::bigint) as at
          from generate_series($1::bigint + 1, $2::bigint) as g (n)) as k`}

// fillCommand inserts commands that were answered within the last 23 hours. Their retention is 24
// hours.
var fillCommand = filling{table: "command", octets: 560, insert: `
insert into pawl.command (scope, key, hash, created_at, updated_at, expires_at, status, result)
select 'bench', k.key, sha256(k.key::bytea), k.at, k.at, k.at + interval '24 hours', 'succeeded', convert_to(repeat('x', 200), 'UTF8')
  from (select gen_random_uuid()::text as key, now() - interval '23 hours' * (1 - g.n::float8 / $3::bigint) as at
          from generate_series($1::bigint + 1, $2::bigint) as g (n)) as k`}

// fillHow describes how the tables were filled.
const fillHow = "filled by insert … select of random UUIDs, oldest first, indexes built afterwards (the primary key 70 % full, as random keys leave it), vacuumed"

// fillStep is the number of rows per statement. Progress is printed after each.
const fillStep = 1_000_000

// of returns Pawl with n rows in the table. The template is created once, and each bed is a copy.
func (f filling) of(n int) system {
	return system{fmt.Sprintf("%s_%d", f.table, n), func(ctx context.Context, pool *pgxpool.Pool) error {
		if err := installPawl(ctx, pool); err != nil || n == 0 {
			return err
		}
		if err := room(ctx, pool, f.table, n, f.octets); err != nil {
			return err
		}
		return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return f.fill(ctx, c.Conn(), n) })
	}, pawlSystem.open}
}

func (f filling) fill(ctx context.Context, conn *pgx.Conn, n int) error {
	tell := progress(n)
	rebuild, err := f.strip(ctx, conn)
	if err != nil {
		return err
	}
	for at := 0; at < n; {
		next := min(at+fillStep, n)
		if _, err := conn.Exec(ctx, f.insert, at, next, n); err != nil {
			return err
		}
		at = next
		tell("%s of %s rows in pawl.%s", number(float64(at)), number(float64(n)), f.table)
	}
	for _, sql := range append(rebuild, "vacuum analyze pawl."+f.table) {
		tell("%s", sql)
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return wantRows(ctx, conn, f.table, n)
}

// strip drops the indexes of the table and returns the statements that recreate them. Inserting
// random keys into an index larger than shared_buffers takes several times as long.
func (f filling) strip(ctx context.Context, conn *pgx.Conn) (rebuild []string, err error) {
	rows, err := conn.Query(ctx, `
		select i.relname, pg_get_indexdef(i.oid), x.indisprimary
		  from pg_index as x
		  join pg_class as i on i.oid = x.indexrelid
		 where x.indrelid = ('pawl.' || $1)::regclass
		 order by i.relname`, f.table)
	if err != nil {
		return nil, err
	}
	var (
		name, made string
		primary    bool
		drop       []string
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &made, &primary}, func() error {
		if !primary {
			drop = append(drop, "drop index pawl."+name)
			rebuild = append(rebuild, made)
			return nil
		}
		drop = append(drop, fmt.Sprintf("alter table pawl.%s drop constraint %s", f.table, name))
		rebuild = append(rebuild, made+" with (fillfactor = 70)",
			fmt.Sprintf("alter table pawl.%s add constraint %s primary key using index %s", f.table, name, name),
			fmt.Sprintf("alter index pawl.%s reset (fillfactor)", name))
		return nil
	})
	for _, sql := range drop {
		if err == nil {
			_, err = conn.Exec(ctx, sql)
		}
	}
	return rebuild, err
}

// jobsWaiting returns Pawl with n due jobs, enqueued in the normal way.
func jobsWaiting(n int) system {
	return system{fmt.Sprintf("jobs_%d", n), func(ctx context.Context, pool *pgxpool.Pool) error {
		if err := installPawl(ctx, pool); err != nil {
			return err
		}
		if err := room(ctx, pool, "job", n, 260); err != nil {
			return err
		}
		q, tell := &pawlQueue{pool: pool}, progress(n)
		for at, told := 0, time.Now(); at < n; {
			step := min(manySize, n-at)
			if err := q.enqueueMany(ctx, step, payload{At: time.Now().UnixNano()}); err != nil {
				return err
			}
			if at += step; at%fillStep == 0 || time.Since(told) > 10*time.Second {
				tell("%s of %s jobs enqueued", number(float64(at)), number(float64(n)))
				told = time.Now()
			}
		}
		if _, err := pool.Exec(ctx, "vacuum analyze pawl.job"); err != nil {
			return err
		}
		return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return wantRows(ctx, c.Conn(), "job", n) })
	}, pawlSystem.open}
}

// wantRows checks the number of rows of one of Pawl's tables.
func wantRows(ctx context.Context, conn *pgx.Conn, table string, n int) error {
	var got int
	err := conn.QueryRow(ctx, "select count(*) from pawl."+table).Scan(&got)
	if err == nil && got != n {
		err = fmt.Errorf("pawl.%s has %d rows, wanted %d", table, got, n)
	}
	return err
}

// room refuses to fill a table if the disk has less than three times the space. That is needed for
// the template, a copy, and sorting with WAL.
func room(ctx context.Context, pool *pgxpool.Pool, table string, n int, octets int64) error {
	var dir string
	if err := pool.QueryRow(ctx, "show data_directory").Scan(&dir); err != nil {
		return err
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	const gib = 1 << 30
	need, free := 3*int64(n)*octets, int64(disk.Bavail)*int64(disk.Bsize)
	if free >= need {
		return nil
	}
	return fmt.Errorf("%s rows in pawl.%s and a copy of them need %.1f GiB of disk, and %s has %.1f free: ask for fewer, or set TMPDIR to a directory with more",
		number(float64(n)), table, float64(need)/gib, dir, float64(free)/gib)
}

// progress returns a function that prints progress, or nothing if there are fewer than fillStep
// rows.
func progress(rows int) (tell func(format string, args ...any)) {
	start := time.Now()
	return func(format string, args ...any) {
		if rows >= fillStep {
			fmt.Fprintf(os.Stderr, "  %4.0f s  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		}
	}
}
