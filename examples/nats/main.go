// Command nats applies orders from a JetStream stream to PostgreSQL, each once, however often it
// arrives.
package main

import (
	"context"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "setup" {
		service.Main(setup)
		return
	}
	service.Main(run)
}

// connect returns a client that reconnects without limit and notices a dead connection within 20 s.
func connect(url string) (jetstream.JetStream, error) {
	conn, err := nats.Connect(url, nats.Name("orders"), nats.MaxReconnects(-1), nats.PingInterval(10*time.Second))
	if err != nil {
		return nil, err
	}
	return jetstream.New(conn)
}

// setup makes the stream and its consumer. Run it once, as an operator: the program only checks
// them.
func setup(ctx context.Context) error {
	js, err := connect(os.Getenv("NATS_URL"))
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

func run(ctx context.Context) error {
	pool, cfg, err := service.FromEnv(ctx)
	if err != nil {
		return err
	}
	js, err := connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer js.Conn().Close() // after the consumer has ended
	source, err := pawlnats.Open(ctx, js, "ORDERS", "billing", pawlnats.Config{})
	if err != nil {
		return err
	}
	app, err := service.New(pool, cfg)
	if err != nil {
		return err
	}
	app.Consumer(consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(apply)})
	return app.Run(ctx)
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
