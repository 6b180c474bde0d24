// Command rabbitmq applies orders from a RabbitMQ queue to PostgreSQL, each once, however often it
// arrives.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "setup" {
		if err := setup(os.Getenv("RABBITMQ_URL")); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("RABBITMQ_URL")); err != nil {
		log.Fatal(err)
	}
}

// setup creates the queue and its dead letter exchange once, as an operator does. The program
// itself only checks them.
func setup(url string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.ExchangeDeclare("orders.dead", "fanout", true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := ch.QueueDeclare("orders.dead", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		return err
	}
	if err := ch.QueueBind("orders.dead", "", "orders.dead", false, nil); err != nil {
		return err
	}
	_, err = ch.QueueDeclare("orders", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 50, "x-dead-letter-exchange": "orders.dead"})
	return err
}

func run(ctx context.Context, database, url string) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	source, err := pawlrabbitmq.Open(ctx, pawlrabbitmq.URL(url), "orders", pawlrabbitmq.Config{})
	if err != nil {
		return err
	}
	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(apply)})
	if err != nil {
		return err
	}
	return c.Run(ctx) // closes the source's connection last
}

// An Order is the payload of a message. A payload that is not such JSON becomes a dead letter,
// because no retry can help.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// apply writes one order. Its row and the record of the delivery commit together.
func apply(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
	_, err := tx.Exec(ctx, "insert into orders (id, cents) values ($1, $2)", m.Value.ID, m.Value.Cents)
	return err // retried from the database, with back-off
}
