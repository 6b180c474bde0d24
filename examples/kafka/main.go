// Command kafka applies orders from a Kafka topic to PostgreSQL, each once, however often it
// arrives.
package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

func main() { service.Main(run) }

func run(ctx context.Context) error {
	pool, cfg, err := service.FromEnv(ctx)
	if err != nil {
		return err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), ",")...),
		kgo.ClientID("billing"),
		kgo.SessionTimeout(10 * time.Second), // the records of a killed process wait for so long
	}
	source, err := pawlkafka.Open(ctx, opts, "billing", []string{"orders"}, pawlkafka.Config{})
	if err != nil {
		return err
	}
	app, err := service.New(pool, cfg)
	if err != nil {
		return err
	}
	app.Consumer(consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(apply)})
	return app.Run(ctx) // leaves the group when it ends
}

// An Order is the value of a record. A record that does not decode becomes a dead letter.
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
