package recipes

import (
	"context"
	"database/sql"
	"strings"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"

	"github.com/pawl-go/pawl"
)

// A transaction that sqlx has not begun has no driver name, by which it would know PostgreSQL's placeholders.
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

// PlaceWithSqlx is a transaction that sqlx begins.
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
