package outside

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
)

type (
	chargeRequest  struct{}
	chargeResponse struct{}
)

type paymentsClient interface {
	Charge(ctx context.Context, in *chargeRequest, opts ...grpc.CallOption) (*chargeResponse, error)
}

type worker struct {
	pool     *pgxpool.Pool
	db       *sql.DB
	queue    *sqs.Client
	channel  *amqp.Channel
	client   *http.Client
	payments paymentsClient
	bus      message.Publisher
}

func (w *worker) http(ctx context.Context, tx pgx.Tx, id string) error {
	if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id); err != nil {
		return err
	}
	resp, err := http.Post("https://mail.example/send", "text/plain", nil) // want "http.Post is called inside a transaction"
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (w *worker) closure(ctx context.Context, r *http.Request, id string) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id); err != nil {
			return err
		}
		resp, err := w.client.Do(r) // want "http.Client.Do is called inside a transaction"
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

func (w *worker) grpc(ctx context.Context, tx *sql.Tx, id string) error {
	if _, err := w.payments.Charge(ctx, &chargeRequest{}); err != nil { // want "Charge is called inside a transaction"
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE orders SET paid = true WHERE id = $1", id)
	return err
}

func (w *worker) sends(ctx context.Context, body string) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", body); err != nil {
		return err
	}
	if _, err := w.queue.SendMessage(ctx, &sqs.SendMessageInput{MessageBody: &body}); err != nil { // want "sqs.Client.SendMessage is called inside a transaction"
		return err
	}
	return tx.Commit()
}

func (w *worker) second(ctx context.Context, tx pgx.Tx, id string) error {
	var rate int
	if err := w.pool.QueryRow(ctx, "SELECT rate FROM rates").Scan(&rate); err != nil { // want "second connection"
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE orders SET price = price * $1 WHERE id = $2", rate, id)
	return err
}

func (w *worker) captured(ctx context.Context, pool *pgxpool.Pool, id string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := pool.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id) // want "second connection"
		return err
	}
}

func (w *worker) publish(ctx context.Context, body []byte) error {
	return w.channel.PublishWithContext(ctx, "", "orders", false, false, amqp.Publishing{Body: body})
}

func (w *worker) helper(ctx context.Context, tx pgx.Tx, id string) error {
	if err := w.publish(ctx, []byte(id)); err != nil { // want "PublishWithContext is called inside a transaction"
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", id)
	return err
}

func (w *worker) bussed(ctx context.Context, tx *sql.Tx, m *message.Message) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", m.UUID); err != nil {
		return err
	}
	return w.bus.Publish("orders", m) // want "Publish is called inside a transaction"
}
