package swallow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
)

func returned(ctx context.Context, tx pgx.Tx, id string) error {
	if _, err := tx.Exec(ctx, "INSERT INTO audit (id) VALUES ($1)", id); err != nil {
		log.Println(err)
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// A row that is not there is no failed statement.
func missing(ctx context.Context, tx pgx.Tx, id string) error {
	var n int
	err := tx.QueryRow(ctx, "SELECT n FROM limits WHERE id = $1", id).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		log.Println("no limit:", err)
		return nil
	}
	return err
}

func missingSQL(ctx context.Context, tx *sql.Tx, id string) (int, error) {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT n FROM limits WHERE id = $1", id).Scan(&n); err != nil {
		if err == sql.ErrNoRows {
			return 0, nil
		}
		return 0, err
	}
	return n, nil
}

func missingInside(ctx context.Context, tx pgx.Tx, id string) error {
	var n int
	if err := tx.QueryRow(ctx, "SELECT n FROM limits WHERE id = $1", id).Scan(&n); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return nil
}

// A savepoint saves the transaction.
func savepoint(ctx context.Context, tx pgx.Tx, id string) error {
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := inner.Exec(ctx, "INSERT INTO audit (id) VALUES ($1)", id); err != nil {
		log.Println(err)
		return inner.Rollback(ctx)
	}
	return inner.Commit(ctx)
}

func savepointSQL(ctx context.Context, tx *sql.Tx, id string) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT audit"); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO audit (id) VALUES ($1)", id); err != nil {
		log.Println(err)
		if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT audit"); err != nil {
			return err
		}
	}
	return nil
}

// The error decides in the caller.
func collected(ctx context.Context, tx pgx.Tx, ids []string) error {
	var errs []error
	for _, id := range ids {
		if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// The message is given back.
func (w *worker) givenBack(ctx context.Context, d amqp.Delivery) error {
	if _, err := w.pool.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", d.MessageId); err != nil {
		log.Println(err)
		return d.Nack(false, true)
	}
	return d.Ack(false)
}

func (w *worker) park(ctx context.Context, m kafka.Message, why error) error { return nil }

func (w *worker) parked(ctx context.Context, m kafka.Message) error {
	if _, err := w.pool.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", m.Key); err != nil {
		return w.park(ctx, m, err)
	}
	return nil
}

// Outside of a transaction and of a handler, a report is a choice.
func (w *worker) metric(ctx context.Context) error {
	if _, err := w.pool.Exec(ctx, "INSERT INTO metrics (at) VALUES (now())"); err != nil {
		log.Println(err)
	}
	return nil
}

// It only reads.
func (w *worker) readOnly(ctx context.Context) (n int, err error) {
	tx, err := w.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer tx.Commit()
	err = tx.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n)
	return n, err
}

func uniqueReturned(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", id)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "23505" {
		return fmt.Errorf("payment %s is there: %w", id, err)
	}
	return err
}

func (w *worker) callbackReturns(d amqp.Delivery) {
	if _, err := w.db.Exec("INSERT INTO payments (id) VALUES ($1)", d.MessageId); err != nil {
		log.Println(err)
		d.Nack(false, true)
		return
	}
	d.Ack(false)
}

// The broker gets its answer, and the caller none.
func (w *worker) answered(ctx context.Context, d amqp.Delivery) error {
	if _, err := w.pool.Exec(ctx, "INSERT INTO payments (id) VALUES ($1)", d.MessageId); err != nil {
		log.Println(err)
		d.Nack(false, true)
		return nil
	}
	return d.Ack(false)
}

// Only the missing row is success.
func missingFirst(ctx context.Context, tx pgx.Tx, id string) error {
	var n int
	if err := tx.QueryRow(ctx, "SELECT n FROM limits WHERE id = $1", id).Scan(&n); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		log.Println(err)
		return errors.New("no limit")
	}
	return nil
}
