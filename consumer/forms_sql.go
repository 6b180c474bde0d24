package consumer

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

// HandleSQL is [HandleTx] for database/sql, and so for libraries that take a *sql.Tx, such as GORM,
// ent, bun, sqlx and sqlc: docs/guides/database-sql.md shows each. tx is the transaction of the
// claim, on a connection of the consumer's pool. tx.Commit returns an error, and tx.Rollback makes
// the attempt fail; the server receives neither. When fn returns, Pawl closes open rows and
// prepared statements, and tx returns [sql.ErrTxDone] from then on.
//
// Statements on your *sql.DB are not part of the transaction. Make that *sql.DB with
// stdlib.OpenDBFromPool on the consumer's pool. Pass pawl.SQLTx(tx) to functions of Pawl that take
// a transaction.
func HandleSQL[T any](fn func(ctx context.Context, tx *sql.Tx, m Message[T]) error) SQLHandler {
	if fn == nil {
		return SQLHandler{}
	}
	return SQLHandler{call: func(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error {
		m, err := decode[T](d)
		if err != nil {
			return err
		}
		return fn(ctx, tx, m)
	}}
}

// A SQLHandler is a handler made by [HandleSQL].
type SQLHandler struct {
	call   func(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error
	policy TxPolicy
}

// With returns the handler under a policy.
func (h SQLHandler) With(p TxPolicy) SQLHandler {
	h.policy = p
	return h
}

// Policy returns the handler's policy, as it was given.
func (h SQLHandler) Policy() TxPolicy { return h.policy }

// Apply calls the function for one delivery in a transaction of yours: see [TxHandler.Apply].
func (h SQLHandler) Apply(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error {
	if h.call == nil {
		return errNoHandler
	}
	return h.call(ctx, tx, d)
}

func (h SQLHandler) settings() settings {
	s := TxHandler{policy: h.policy}.settings()
	if h.call != nil {
		s.sql, s.tx = true, func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
			return txn.LendSQL(ctx, tx, func(tx *sql.Tx) error { return h.call(ctx, tx, ds[0]) })
		}
	}
	return s
}

// HandleManySQL is [HandleManyTx] for database/sql: see [HandleSQL].
func HandleManySQL[T any](fn func(ctx context.Context, tx *sql.Tx, ms []Message[T]) error) ManyTxHandler {
	if fn == nil {
		return ManyTxHandler{}
	}
	h := HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []Message[T]) error {
		return txn.LendSQL(ctx, tx, func(tx *sql.Tx) error { return fn(ctx, tx, ms) })
	})
	h.sql = true
	return h
}
