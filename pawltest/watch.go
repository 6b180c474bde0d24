package pawltest

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A watchedTx is a transaction with a boundary before and after each statement.
type watchedTx struct {
	pgx.Tx
	boundaries *boundaries
}

func (w *watchedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	w.boundaries.pass()
	tx, err := w.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &watchedTx{tx, w.boundaries}, nil
}

func (w *watchedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	w.boundaries.pass()
	tag, err := w.Tx.Exec(ctx, sql, args...)
	w.boundaries.pass()
	return tag, err
}

func (w *watchedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	w.boundaries.pass()
	return w.Tx.Query(ctx, sql, args...)
}

func (w *watchedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	w.boundaries.pass()
	return w.Tx.QueryRow(ctx, sql, args...)
}

func (w *watchedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	w.boundaries.pass()
	return w.Tx.SendBatch(ctx, b)
}

func (w *watchedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	w.boundaries.pass()
	n, err := w.Tx.CopyFrom(ctx, table, columns, rows)
	w.boundaries.pass()
	return n, err
}
