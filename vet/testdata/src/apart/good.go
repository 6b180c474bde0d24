package apart

import (
	"context"
	"database/sql"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
)

func (w *worker) together(ctx context.Context, m types.Message) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "INSERT INTO processed_messages (message_id) VALUES ($1) ON CONFLICT DO NOTHING", *m.MessageId)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", *m.Body)
		return err
	})
}

func (w *worker) togetherSQL(ctx context.Context, id string) (err error) {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tx.Rollback()
		}
	}()
	if _, err = tx.ExecContext(ctx, "INSERT INTO inbox (message_id) VALUES ($1)", id); err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
		return err
	}
	return tx.Commit()
}

// A savepoint is a part of its transaction.
func (w *worker) savepoint(ctx context.Context, tx pgx.Tx, id string) error {
	if _, err := tx.Exec(ctx, "INSERT INTO processed_messages (message_id) VALUES ($1)", id); err != nil {
		return err
	}
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := inner.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
		return inner.Rollback(ctx)
	}
	return inner.Commit(ctx)
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// The handle comes from the caller, and its kind is not known here.
func store(ctx context.Context, db execer, id string) error {
	if _, err := db.ExecContext(ctx, "INSERT INTO processed_messages (message_id) VALUES ($1)", id); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id)
	return err
}

// Reading on the pool is no effect, and neither is a row about the user.
func (w *worker) reads(ctx context.Context, id string) error {
	var n int
	if err := w.db.QueryRowContext(ctx, "SELECT n FROM limits WHERE id = $1", id).Scan(&n); err != nil {
		return err
	}
	if _, err := w.db.ExecContext(ctx, "UPDATE users SET last_seen = now() WHERE id = $1", id); err != nil {
		return err
	}
	_, err := w.db.ExecContext(ctx, "INSERT INTO user_last_seen (user_id) VALUES ($1)", id)
	return err
}

// A reservation is completed in the transaction of the effect.
func (w *worker) reserve(ctx context.Context, key string) error {
	if _, err := w.pool.Exec(ctx, "INSERT INTO idempotency_keys (key, state) VALUES ($1, 'started')", key); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", key); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE idempotency_keys SET state = 'done' WHERE key = $1", key)
		return err
	})
}

// A webhook is stored, and processed later.
func (w *worker) storeWebhook(ctx context.Context, id string, body []byte) error {
	_, err := w.pool.Exec(ctx, "INSERT INTO webhook_events (event_id, body) VALUES ($1, $2) ON CONFLICT DO NOTHING", id, body)
	return err
}

// The transaction comes from any case of the turn before.
func turnTransaction(ctx context.Context, tx pgx.Tx, query string, next <-chan int) error {
	for n := range next {
		switch n {
		case 0:
			tx = nil
		case 1:
			n += 10
		case 2:
			n += 20
		case 3:
			n += 30
		case 4:
			n += 40
		case 5:
			n += 50
		case 6:
			n += 60
		case 7:
			n += 70
		}
		if _, err := tx.Exec(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// The statement comes from any case of the turn before.
func turnStatement(ctx context.Context, tx pgx.Tx, query string, next <-chan int) error {
	for n := range next {
		if _, err := tx.Exec(ctx, query); err != nil {
			return err
		}
		switch n {
		case 0:
			query = ""
		case 1:
			n += 10
		case 2:
			n += 20
		case 3:
			n += 30
		case 4:
			n += 40
		case 5:
			n += 50
		case 6:
			n += 60
		case 7:
			n += 70
		}
	}
	return nil
}
