package job

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/txn"
)

// HandleSQL is [HandleTx] for database/sql, and so for GORM, ent, bun, sqlx and sqlc. tx is the
// transaction in which the job ends, on a connection of the worker's pool, through pgx's driver.
// Commit on tx returns an error, and Rollback makes the attempt fail; neither sends a statement.
// Rows and prepared statements opened on tx are closed when fn returns. After that, tx returns
// [sql.ErrTxDone].
//
// Statements outside tx, such as those of your *sql.DB, are not part of the transaction. Create the
// *sql.DB of your program with stdlib.OpenDBFromPool, so that both share one pool. To call Pawl
// inside fn, pass pawl.SQLTx(tx).
func HandleSQL[T any](kind string, fn func(ctx context.Context, tx *sql.Tx, t Task[T]) error) SingleHandler {
	h := HandleTx(kind, func(ctx context.Context, tx pgx.Tx, t Task[T]) error {
		return txn.LendSQL(ctx, tx, func(tx *sql.Tx) error { return fn(ctx, tx, t) })
	})
	h.given.sql, h.given.empty = true, fn == nil
	return h
}

// HandleManySQL is [HandleManyTx] for database/sql: see [HandleSQL].
func HandleManySQL[T any](kind string, fn func(ctx context.Context, tx *sql.Tx, ts []Task[T]) error) ManyHandler {
	h := HandleManyTx(kind, func(ctx context.Context, tx pgx.Tx, ts []Task[T]) error {
		return txn.LendSQL(ctx, tx, func(tx *sql.Tx) error { return fn(ctx, tx, ts) })
	})
	h.given.sql, h.given.empty = true, fn == nil
	return h
}
