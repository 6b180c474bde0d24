// Package sqlx has the names that the test data uses.
package sqlx

import (
	"context"
	"database/sql"
)

type DB struct{ *sql.DB }

func (*DB) BeginTxx(ctx context.Context, o *sql.TxOptions) (*Tx, error)               { return nil, nil }
func (*DB) GetContext(ctx context.Context, dest any, query string, args ...any) error { return nil }

type Tx struct{ *sql.Tx }

func (*Tx) GetContext(ctx context.Context, dest any, query string, args ...any) error { return nil }
func (*Tx) NamedExecContext(ctx context.Context, query string, arg any) (sql.Result, error) {
	return nil, nil
}
