// Package catalog reads Pawl's tables and views, with one Go function per query. It changes
// nothing. Package contract calls the functions of schema pawl_v1.
package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// DB runs the queries.
type DB = pawl.DB

// Function and operator names resolve through the caller's search_path, and other roles may be able
// to create objects in its schemas. Reads use many such names, so they go through [Look]. See
// docs/decisions/0035-search-path.md.
const (
	pinSQL = `select pg_catalog.set_config('pawl.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)`
	unpinSQL = "select pg_catalog.set_config('search_path', pg_catalog.current_setting('pawl.search_path'), true)"
)

// Look runs a read in which every name without a schema means PostgreSQL's own. It sets search_path
// in the caller's transaction or in its own, and restores it. The statement is also prepared under
// that path, because names and parameter types are resolved then. A read that fails in your
// transaction aborts it, as usual.
func Look[T any](ctx context.Context, db DB, op, sql string, args []any, read pgx.RowToFunc[T]) (all []T, err error) {
	err = within(ctx, db, func(db DB) error {
		var before, now string
		if err := db.QueryRow(ctx, pinSQL).Scan(&before, &now); err != nil {
			return err
		}
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		if all, err = pgx.CollectRows(rows, read); err != nil {
			return err
		}
		return db.QueryRow(ctx, unpinSQL).Scan(&now)
	})
	return all, pawl.Wrap(op, err)
}

// lookOne runs a read that returns exactly one row, as [Look] does.
func lookOne(ctx context.Context, db DB, op, sql string, args []any, into ...any) error {
	rows, err := Look(ctx, db, op, sql, args, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, row.Scan(into...) })
	if err == nil && len(rows) == 0 {
		err = pawl.Wrap(op, pgx.ErrNoRows)
	}
	return err
}

type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// within runs do in the caller's transaction. Otherwise it begins one and rolls it back, since it
// only reads.
func within(ctx context.Context, db DB, do func(DB) error) error {
	switch t := db.(type) {
	case pawl.Tx:
		return do(t)
	case beginner: // a pool or a connection
		tx, err := t.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		return do(tx)
	case interface {
		Within(ctx context.Context, do func(pawl.DB) error) error
	}: // a handle that pawl.SQL returns
		return t.Within(ctx, do)
	}
	return &pawl.Error{Code: pawl.CodeArgumentInvalid, Err: errors.New("this handle can begin no transaction"),
		Hint: "pass a *pgxpool.Pool, a *pgx.Conn, a pgx.Tx, or what pawl.SQL or pawl.SQLTx returns"}
}

// RolledBack runs do and undoes its changes, in a transaction of its own or behind a savepoint of
// the caller's. If do fails in the caller's transaction, that transaction stays usable.
func RolledBack(ctx context.Context, db DB, do func(DB) error) error {
	return within(ctx, db, func(tx DB) error {
		// fails outside of a transaction
		if err := send(ctx, tx, "savepoint pawl_dry_run"); err != nil {
			return err
		}
		err := do(tx)
		late := context.WithoutCancel(ctx)
		return errors.Join(err, send(late, tx, "rollback to savepoint pawl_dry_run"), send(late, tx, "release savepoint pawl_dry_run"))
	})
}

// send runs a statement and discards its rows.
func send(ctx context.Context, db DB, statement string) error {
	rows, err := db.Query(ctx, statement)
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// Now returns the time of the server's clock, in UTC.
func Now(ctx context.Context, db DB) (now time.Time, err error) {
	err = db.QueryRow(ctx, "select pg_catalog.clock_timestamp()").Scan(&now)
	return now.UTC(), pawl.Wrap("clock", err)
}
