// Package pgx has the names that the test data uses.
package pgx

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

var ErrNoRows = errors.New("no rows")

type TxIsoLevel string

const (
	Serializable  TxIsoLevel = "serializable"
	ReadCommitted TxIsoLevel = "read committed"
)

type TxOptions struct{ IsoLevel TxIsoLevel }

type Row interface{ Scan(dest ...any) error }

type Rows interface {
	Close()
	Err() error
	Next() bool
	Scan(dest ...any) error
}

type Tx interface {
	Begin(ctx context.Context) (Tx, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) Row
	Conn() *Conn
}

type Conn struct{}

func (*Conn) Begin(ctx context.Context) (Tx, error)                       { return nil, nil }
func (*Conn) BeginTx(ctx context.Context, o TxOptions) (Tx, error)        { return nil, nil }
func (*Conn) QueryRow(ctx context.Context, sql string, args ...any) Row   { return nil }
func (*Conn) Query(ctx context.Context, s string, a ...any) (Rows, error) { return nil, nil }
func (*Conn) Exec(c context.Context, s string, a ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, nil
}

func BeginFunc(ctx context.Context, db interface {
	Begin(ctx context.Context) (Tx, error)
}, fn func(Tx) error) error {
	return nil
}
