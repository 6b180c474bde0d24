package outside

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The call comes after the commit.
func (w *worker) after(ctx context.Context, body string) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", body); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	_, err = w.queue.SendMessage(ctx, &sqs.SendMessageInput{MessageBody: &body})
	return err
}

// The call comes before the transaction.
func (w *worker) before(ctx context.Context, id string) error {
	resp, err := http.Get("https://rates.example/today")
	if err != nil {
		return err
	}
	resp.Body.Close()
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id)
		return err
	})
}

// A request that is answered is no call.
func (w *worker) answers(rw http.ResponseWriter, r *http.Request) {
	err := pgx.BeginFunc(r.Context(), w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(r.Context(), "UPDATE orders SET paid = true WHERE id = $1", r.URL.Query().Get("id"))
		return err
	})
	if err != nil {
		http.Error(rw, "later", http.StatusServiceUnavailable)
	}
}

type publisher struct{ tx *sql.Tx }

func newPublisher(tx *sql.Tx) message.Publisher { return &publisher{tx} }

func (p *publisher) Publish(topic string, ms ...*message.Message) error { return nil }
func (p *publisher) Close() error                                       { return nil }

// An outbox writes in the transaction.
func (w *worker) outbox(ctx context.Context, tx *sql.Tx, m *message.Message) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", m.UUID); err != nil {
		return err
	}
	return newPublisher(tx).Publish("orders", m)
}

// Without a transaction the pool is used instead.
func (w *worker) optional(ctx context.Context, tx pgx.Tx, id string) error {
	if tx == nil {
		_, err := w.pool.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id)
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id)
	return err
}

// The connection is the transaction's own.
func (w *worker) own(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Conn().Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id)
	return err
}

// It runs after the commit.
func (w *worker) hooks(ctx context.Context, tx pgx.Tx, afterCommit func(func())) error {
	afterCommit(func() { http.Get("https://mail.example/send") })
	_, err := tx.Exec(ctx, "UPDATE orders SET paid = true")
	return err
}

// Two transactions, one after the other.
func (w *worker) sequence(ctx context.Context, pool *pgxpool.Pool) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true"); err != nil {
		tx.Rollback(ctx)
		_, err = pool.Exec(ctx, "INSERT INTO failures (at) VALUES (now())")
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "INSERT INTO runs (at) VALUES (now())")
	return err
}

func (w *worker) emit(tx *sql.Tx, m *message.Message) error {
	return newPublisher(tx).Publish("orders", m)
}

// The function that publishes gets the transaction.
func (w *worker) outboxHelper(ctx context.Context, m *message.Message) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := w.emit(tx, m); err != nil {
		tx.Rollback()
		return err
	}
	return tx.Commit()
}

type options struct{ tx pgx.Tx }

func (w *worker) count(ctx context.Context, o options) (n int, err error) {
	const q = "SELECT count(*) FROM orders"
	if o.tx != nil {
		return n, o.tx.QueryRow(ctx, q).Scan(&n)
	}
	return n, w.pool.QueryRow(ctx, q).Scan(&n)
}

// The transaction is passed on in a struct.
func (w *worker) inOptions(ctx context.Context) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := w.count(ctx, options{tx: tx}); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true"); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
