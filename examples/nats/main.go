// Command nats applies orders from a JetStream stream to PostgreSQL, each once, however often it
// arrives.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "setup" {
		if err := setup(ctx, os.Getenv("NATS_URL")); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("NATS_URL")); err != nil {
		log.Fatal(err)
	}
}

// connect reconnects forever, and detects a dead connection within 20 s.
func connect(url string) (jetstream.JetStream, error) {
	conn, err := nats.Connect(url, nats.Name("orders"), nats.MaxReconnects(-1), nats.PingInterval(10*time.Second))
	if err != nil {
		return nil, err
	}
	return jetstream.New(conn)
}

// setup creates the stream and its consumer once, as an operator does. The program itself only
// checks them.
func setup(ctx context.Context, url string) error {
	js, err := connect(url)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.>"}, MaxAge: 7 * 24 * time.Hour, Discard: jetstream.DiscardNew}); err != nil {
		return err
	}
	_, err = js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{
		Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: -1})
	return err
}

func run(ctx context.Context, database, url string) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	js, err := connect(url)
	if err != nil {
		return err
	}
	defer js.Conn().Close() // after the consumer has ended
	source, err := pawlnats.Open(ctx, js, "ORDERS", "billing", pawlnats.Config{})
	if err != nil {
		return err
	}
	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(apply)})
	if err != nil {
		return err
	}
	return c.Run(ctx)
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
