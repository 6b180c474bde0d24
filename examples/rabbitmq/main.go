// Command rabbitmq applies orders from a RabbitMQ queue to PostgreSQL, each once, however often it
// arrives.
package main

import (
	"context"
	"os"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "setup" {
		service.Main(setup)
		return
	}
	service.Main(run)
}

// setup makes the queue and its dead letter exchange. Run it once, as an operator: the program only
// checks them.
func setup(context.Context) error {
	conn, err := amqp.Dial(os.Getenv("RABBITMQ_URL"))
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

func run(ctx context.Context) error {
	pool, cfg, err := service.FromEnv(ctx)
	if err != nil {
		return err
	}
	source, err := pawlrabbitmq.Open(ctx, pawlrabbitmq.URL(os.Getenv("RABBITMQ_URL")), "orders", pawlrabbitmq.Config{})
	if err != nil {
		return err
	}
	app, err := service.New(pool, cfg)
	if err != nil {
		return err
	}
	app.Consumer(consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(apply)})
	return app.Run(ctx) // it closes the source's connection last
}

// An Order is the payload of a message. A message that does not decode becomes a dead letter.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// apply writes one order, in the transaction that records the message as processed. Both commit, or
// neither does. If apply returns an error, Pawl keeps the message and retries it with back-off.
func apply(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
	_, err := tx.Exec(ctx, "insert into orders (id, cents) values ($1, $2)", m.Value.ID, m.Value.Cents)
	return err
}
