package consumer

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

// HandleSQL is [HandleTx] for database/sql, and so for GORM, ent, bun, sqlx and sqlc. tx is the
// transaction of the claim, on a connection of the consumer's pool, through pgx's driver. Commit on
// it is an error, Rollback makes the try fail, and neither sends anything. When fn returns, open
// rows and prepared statements are closed, and tx returns [sql.ErrTxDone] from then on.
//
// Statements of your *sql.DB are not part of it. Make the *sql.DB of your program with
// stdlib.OpenDBFromPool, so that both share one pool. In calls of Pawl pass pawl.SQLTx(tx).
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
