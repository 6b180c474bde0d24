// Package pgxpool has the names that the test data uses.
package pgxpool

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type Pool struct{}

func (*Pool) Begin(ctx context.Context) (pgx.Tx, error)                       { return nil, nil }
func (*Pool) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)    { return nil, nil }
func (*Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row   { return nil }
func (*Pool) Query(ctx context.Context, s string, a ...any) (pgx.Rows, error) { return nil, nil }
func (*Pool) Exec(c context.Context, s string, a ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, nil
}
