package apart

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"
	"github.com/segmentio/kafka-go"
)

type worker struct {
	pool *pgxpool.Pool
	db   *sql.DB
	x    *sqlx.DB
}

// The mark is on the pool, the effect in a transaction.
func (w *worker) outside(ctx context.Context, m types.Message) error {
	tag, err := w.pool.Exec(ctx, "INSERT INTO processed_messages (message_id) VALUES ($1) ON CONFLICT DO NOTHING", *m.MessageId) // want "outside of the transaction of its effect"
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", *m.Body)
		return err
	})
}

// No transaction at all.
func (w *worker) none(ctx context.Context, m kafka.Message) error {
	if _, err := w.db.ExecContext(ctx, `UPDATE accounts SET balance = balance + $1`, m.Value); err != nil {
		return err
	}
	_, err := w.db.ExecContext(ctx, `INSERT INTO app.inbox (message_id, handled_at) VALUES ($1, now())`, m.Key) // want "without a transaction"
	return err
}

// Two transactions.
func (w *worker) two(ctx context.Context, id string) error {
	first, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer first.Rollback()
	const table = "idempotency_keys"
	if _, err := first.ExecContext(ctx, "INSERT INTO "+table+" (key) VALUES ($1)", id); err != nil { // want "another transaction than its effect"
		return err
	}
	if err := first.Commit(); err != nil {
		return err
	}
	second, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer second.Rollback()
	if _, err := second.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
		return err
	}
	return second.Commit()
}

// The effect is on the pool, the mark in the transaction that the handler got.
func (w *worker) lent(ctx context.Context, tx pgx.Tx, id string) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s.dedup (event_id) VALUES ($1)", "app"), id); err != nil { // want "its effect outside of it"
		return err
	}
	_, err := w.pool.Exec(ctx, "DELETE FROM reservations WHERE id = $1", id) // want "second connection"
	return err
}

func (w *worker) mark(ctx context.Context, id string) error {
	_, err := w.x.ExecContext(ctx, "INSERT INTO seen_events (event_id) VALUES ($1)", id)
	return err
}

// The mark is in a function of its own, and the effect in one of another package.
func (w *worker) helper(ctx context.Context, id string) error {
	tx, err := w.x.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.NamedExecContext(ctx, "UPDATE orders SET paid = true WHERE id = :id", id); err != nil {
		return err
	}
	if err := w.mark(ctx, id); err != nil { // want "outside of the transaction of its effect"
		return err
	}
	return tx.Commit()
}

type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// The pool is behind an interface.
func behind(ctx context.Context, db beginner, id string) error {
	if _, err := db.Exec(ctx, "INSERT INTO webhook_events (event_id) VALUES ($1) ON CONFLICT DO NOTHING", id); err != nil { // want "outside of the transaction of its effect"
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
