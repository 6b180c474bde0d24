// Package engine distinguishes PostgreSQL from servers that only speak its protocol. Features that
// they lack fail late or not at all. If advisory locks do not lock, for example, two workers get
// one job, and a message has two effects.
package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
)

// Oldest is the first major version on which the schema installs; older ones lack SQL-standard
// function bodies. Tested is the oldest version on which our tests run.
const Oldest, Tested = 14, 15

// others lists words in version() of servers that are not PostgreSQL, and features that each lacks.
// The source is their documentation; none was tried. YugabyteDB has LISTEN since 2025.2.3, as early
// access
// (https://docs.yugabyte.com/stable/api/ysql/the-sql-language/statements/cmd_listen_notify/).
var others = []struct{ word, name, lacks string }{
	{"CockroachDB", "CockroachDB", "its advisory locks exclude no one, and it has no LISTEN"},
	{"-YB-", "YugabyteDB", "its row versions are not PostgreSQL's, and before 2025.2.3 it has no LISTEN"},
	{"Redshift", "Amazon Redshift", "it has neither row locks nor enforced unique keys"},
	{"Greenplum", "Greenplum", "a unique key must contain the column by which rows are distributed"},
	{"Cloudberry", "Apache Cloudberry", "a unique key must contain the column by which rows are distributed"},
	{"Materialize", "Materialize", "it has no transactions that read and write"},
	{"RisingWave", "RisingWave", "it has no transactions that read and write"},
	{"CrateDB", "CrateDB", "it has no transactions"},
	{"QuestDB", "QuestDB", "it has no transactions"},
}

// Querier runs the queries.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// The advisory lock of the probe, in Pawl's half of the two-key space. It is held for one
// statement.
const lockSpace, lockNumber = 1885435756, 3

// probe checks features that version() does not reveal. If advisory locks work, a held lock is in
// pg_locks.
var probe = fmt.Sprintf(`with lock as materialized (
  select pg_catalog.pg_try_advisory_xact_lock(%[1]d, %[2]d) as got
), named as (
  select n.name
    from pg_catalog.unnest('{pg_current_xact_id,pg_logical_emit_message,pg_notify,sha256}'::pg_catalog.text[]) as n (name)
   where not exists (select from pg_catalog.pg_proc as p
                      where p.proname::pg_catalog.text operator(pg_catalog.=) n.name
                        and p.pronamespace operator(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace)
)
select pg_catalog.current_setting('server_version_num')::pg_catalog.int4,
       coalesce((select pg_catalog.string_agg(n.name, ', ') from named as n), ''),
       exists (select from pg_catalog.pg_language as l where l.lanname::pg_catalog.text operator(pg_catalog.=) 'plpgsql'),
       not l.got or exists (select from pg_catalog.pg_locks as k
                             where k.locktype operator(pg_catalog.=) 'advisory'
                               and k.pid operator(pg_catalog.=) pg_catalog.pg_backend_pid()
                               and k.classid::pg_catalog.int8 operator(pg_catalog.=) %[1]d
                               and k.objid::pg_catalog.int8 operator(pg_catalog.=) %[2]d
                               and k.granted),
       pg_catalog.current_setting('server_encoding')
  from lock as l`, lockSpace, lockNumber)

// ErrEncoding means that the database cannot store every Unicode text.
var ErrEncoding = errors.New("the schema needs a database in UTF8, because keys, headers and errors may contain any text")

// Refuse returns nil if Pawl runs on this server. Otherwise it returns the reason and the next
// step.
//
// Errors: code 0A000 for a server that is not PostgreSQL or lacks a feature; errors of the
// connection.
func Refuse(ctx context.Context, db Querier) error {
	var version string
	if err := db.QueryRow(ctx, "select pg_catalog.version()").Scan(&version); err != nil {
		return refusal("a server without version()", err)
	}
	if err := named(version); err != nil {
		return err
	}
	var number int
	var missing, encoding string
	var plpgsql, locks bool
	if err := db.QueryRow(ctx, probe).Scan(&number, &missing, &plpgsql, &locks, &encoding); err != nil {
		return refusal(version, err)
	}
	switch {
	case number < Oldest*10000:
		return unfit("use PostgreSQL "+strconv.Itoa(Tested)+" or newer", "this is PostgreSQL %d, and the schema needs %d", number/10000, Oldest)
	case !plpgsql:
		return unfit(elsewhere, "there is no PL/pgSQL here: %s", version)
	case missing != "":
		return unfit(elsewhere, "there is no function %s here: %s", missing, version)
	case encoding != "UTF8":
		return unfit("create a database with: create database ... encoding 'UTF8' template template0", "%w, this one is in %s", ErrEncoding, encoding)
	case !locks:
		return unfit(elsewhere, "an advisory lock was granted, but no session holds it, so it excludes no one: %s", version)
	}
	return nil
}

const elsewhere = "use PostgreSQL itself, or a service that runs it; docs/operating/production.md lists what was tried"

// named recognises a server by its version text.
func named(version string) error {
	for _, o := range others {
		if strings.Contains(version, o.word) {
			return unfit(elsewhere, "this is %s, not PostgreSQL: %s (%s)", o.name, o.lacks, version)
		}
	}
	if !strings.HasPrefix(version, "PostgreSQL ") {
		return unfit(elsewhere, "this is not PostgreSQL: %s", version)
	}
	return nil
}

// refusal returns the error for a server that does not understand a query. Errors of the connection
// are returned unchanged.
func refusal(version string, err error) error {
	var said *pgconn.PgError
	if pawl.Unreachable(err) || !errors.As(err, &said) || said.Code == "42501" || strings.HasPrefix(said.Code, "57") || strings.HasPrefix(said.Code, "53") {
		return err
	}
	return unfit(elsewhere, "it does not answer a query that PostgreSQL answers, so this is another server, or it lacks a feature: %s: %w", version, err)
}

func unfit(hint, format string, args ...any) error {
	return &pawl.Error{Op: "engine", Code: "0A000", Err: fmt.Errorf(format, args...), Hint: hint}
}

// Major returns the major version of a server that Refuse accepted.
func Major(ctx context.Context, db Querier) (major int, err error) {
	err = db.QueryRow(ctx, "select pg_catalog.current_setting('server_version_num')::pg_catalog.int4").Scan(&major)
	return major / 10000, err
}
