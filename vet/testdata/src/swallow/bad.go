package swallow

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
)

type worker struct {
	pool *pgxpool.Pool
	db   *sql.DB
}

func dropped(ctx context.Context, tx pgx.Tx, id string) error {
	tx.Exec(ctx, "INSERT INTO audit (id) VALUES ($1)", id) // want "error of a statement is dropped"
	_, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id)
	return err
}

func blank(ctx context.Context, tx *sql.Tx, id string) error {
	var n int
	_ = tx.QueryRowContext(ctx, "SELECT n FROM limits WHERE id = $1", id).Scan(&n) // want "error of a statement is dropped"
	_, err := tx.ExecContext(ctx, "UPDATE orders SET n = $1 WHERE id = $2", n, id)
	return err
}

func logged(ctx context.Context, tx *sql.Tx, id string) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO audit (id) VALUES ($1)", id); err != nil { // want "only logged, and the function returns nil"
		slog.Error("audit", "err", err, "id", id)
	}
	return nil
}

func loggedEarly(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id) // want "only logged, and the function returns nil"
	if err != nil {
		log.Printf("order %s: %v", id, err)
		return nil
	}
	_, err = tx.Exec(ctx, "INSERT INTO audit (id) VALUES ($1)", id)
	return err
}

func (w *worker) handler(ctx context.Context, m kafka.Message) error {
	if _, err := w.pool.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", m.Key); err != nil { // want "acknowledged without its effect"
		log.Println("payment:", err)
		return nil
	}
	return nil
}

func (w *worker) commit(ctx context.Context, d amqp.Delivery) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", d.MessageId); err != nil {
		tx.Rollback()
		return err
	}
	tx.Commit() // want "error of COMMIT is dropped"
	return nil
}

func (w *worker) commitDeferred(ctx context.Context, id string) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Commit(ctx) // want "error of COMMIT is dropped"
	_, err = tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", id)
	return err
}

func unique(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", id) // want "unique violation is taken as success"
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "23505" {
		return nil
	}
	return err
}

func (w *worker) block(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO audit (id) VALUES ($1)", id); err != nil { // want "only logged"
			log.Println(err)
		}
		return nil
	})
}

// The broker calls it without looking at an error.
func (w *worker) callback(d amqp.Delivery) {
	if _, err := w.db.Exec("INSERT INTO payments (id) VALUES ($1)", d.MessageId); err != nil { // want "the message is acknowledged"
		log.Println(err)
	}
	d.Ack(false)
}

// The second error hides the first.
func overwritten(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, "INSERT INTO audit (id) VALUES ($1)", id) // want "error of a statement is dropped"
	_, err = tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id)
	return err
}

// Only the missing row is no failure.
func missingOrFailed(ctx context.Context, tx pgx.Tx, id string) error {
	var n int
	err := tx.QueryRow(ctx, "SELECT n FROM limits WHERE id = $1", id).Scan(&n) // want "only logged"
	if errors.Is(err, pgx.ErrNoRows) {
		return errors.New("no limit")
	}
	if err != nil {
		log.Println(err)
		return nil
	}
	_, err = tx.Exec(ctx, "UPDATE orders SET n = $1", n)
	return err
}
