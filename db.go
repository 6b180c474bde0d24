package pawl

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pawl-go/pawl/internal/sqldriver"
)

// DB is a *pgxpool.Pool or *pgx.Conn, on which each call is its own transaction, or your open
// transaction. For database/sql see [SQL] and [SQLTx].
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Tx is an open transaction: a pgx.Tx, or a *sql.Tx through [SQLTx]. Functions that must share a
// transaction with your rows take a Tx, so passing a pool does not compile.
type Tx interface {
	DB
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// A Queryer is a *sql.DB, *sql.Conn or *sql.Tx, or an ORM's replacement for one. Pawl calls its
// QueryContext only.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// SQL lets a database/sql handle be used as a [DB]. The driver must be pgx's
// (github.com/jackc/pgx/v5/stdlib), or a wrapper that passes its errors and arguments through.
// Another driver, such as lib/pq, is [ErrArgumentInvalid]: at the first use of a *sql.DB or
// *sql.Tx, but behind a *sql.Conn or an ORM's handle only at the server's first error.
//
// database/sql resends a statement that the driver reports as unsent, and pgx v5.9 to v5.12 may
// report that wrongly. On a *sql.DB give every request a key. Transactions are not affected.
func SQL(q Queryer) DB { return sqlDB{q} }

// SQLTx lets a database/sql transaction, also of sqlc, GORM, ent, bun or sqlx, be used as a [Tx].
// Its driver must be as for [SQL].
func SQLTx(tx *sql.Tx) Tx { return sqlTx{sqlDB{tx}, tx} }

type sqlDB struct{ q Queryer }

// Handle returns the wrapped handle, for other packages of Pawl that identify transactions by it.
func (d sqlDB) Handle() Queryer { return d.q }

func (d sqlDB) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	// QueryRowContext of a wrapper may drop an error: if GORM cannot prepare the statement, it
	// returns an empty *sql.Row, whose Scan panics
	rows, err := d.Query(ctx, query, args...)
	return sqlRow{rows, err}
}

func (d sqlDB) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	rows, err := d.q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, refused(err)
	}
	return &sqlRows{rows}, nil
}

func (d sqlDB) check(ctx context.Context) error { return refused(sqldriver.Check(ctx, d.q)) }

// refused turns an error of a driver that is not pgx's into ErrArgumentInvalid.
func refused(err error) error {
	if err = sqldriver.Judge(err); errors.As(err, new(*sqldriver.Foreign)) {
		return &Error{Op: "pawl.sql", Code: CodeArgumentInvalid, Err: err, Hint: sqldriver.Hint}
	}
	return err
}

// sqlRow implements pgx.Row.
type sqlRow struct {
	rows pgx.Rows
	err  error // of the query
}

func (r sqlRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	_, err := pgx.CollectOneRow(r.rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, row.Scan(dest...) })
	return err
}

// Within runs do in the caller's transaction if q is one, else in a transaction of its own. Pawl's
// reads that set a parameter for their transaction need one.
func (d sqlDB) Within(ctx context.Context, do func(DB) error) error {
	b, ok := d.q.(interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	})
	if !ok {
		return do(d)
	}
	tx, err := b.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // it only reads
	return do(sqlDB{tx})
}

type sqlTx struct {
	sqlDB
	tx *sql.Tx
}

func (t sqlTx) Commit(context.Context) error   { return refused(t.tx.Commit()) }
func (t sqlTx) Rollback(context.Context) error { return t.tx.Rollback() }

// sqlRows implements the part of pgx.Rows that database/sql supports: iterating and scanning. Err
// also returns the error of Close.
type sqlRows struct{ *sql.Rows }

var errNotSQL = errors.New("database/sql cannot answer this")

func (r *sqlRows) Err() error                                   { return refused(r.Rows.Err()) }
func (r *sqlRows) Close()                                       { _ = r.Rows.Close() }
func (r *sqlRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (r *sqlRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (r *sqlRows) Values() ([]any, error)                       { return nil, errNotSQL }
func (r *sqlRows) RawValues() [][]byte                          { return nil }
func (r *sqlRows) Conn() *pgx.Conn                              { return nil }
func (r *sqlRows) TypeMap() *pgtype.Map                         { return nil }
