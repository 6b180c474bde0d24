package recipes

import (
	"context"
	"database/sql"
	"strings"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"

	"github.com/pawl-go/pawl"
)

// sqlx chooses its placeholders by driver name, and a transaction that sqlx did not begin has none.
func init() { sqlx.BindDriver("", sqlx.DOLLAR) }

// SqlxOn returns sqlx on one transaction.
func SqlxOn(tx *sql.Tx) *sqlx.Tx {
	return &sqlx.Tx{Tx: tx, Mapper: reflectx.NewMapperFunc("db", strings.ToLower)}
}

const insertNamed = "insert into recipe_order (id, cents) values (:id, :cents)"

// InsertSqlx writes an order with sqlx.
func InsertSqlx(ctx context.Context, tx *sql.Tx, o Order) error {
	_, err := SqlxOn(tx).NamedExecContext(ctx, insertNamed, o)
	return err
}

// OpenSqlx opens sqlx on a handle that shares Pawl's pool.
func OpenSqlx(db *sql.DB) *sqlx.DB { return sqlx.NewDb(db, "pgx") }

// PlaceWithSqlx runs in a transaction that sqlx begins.
func PlaceWithSqlx(ctx context.Context, db *sqlx.DB, o Order) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.NamedExecContext(ctx, insertNamed, o); err != nil {
		return err
	}
	if _, err := Ship.Enqueue(ctx, pawl.SQL(tx.Tx), o); err != nil {
		return err
	}
	return tx.Commit()
}
