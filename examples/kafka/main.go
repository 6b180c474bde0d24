// Command kafka applies orders from a Kafka topic to PostgreSQL, each once, however often it
// arrives.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("KAFKA_BOOTSTRAP_SERVERS")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, database, brokers string) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.ClientID("billing"),
		kgo.SessionTimeout(10 * time.Second), // for this long records of a dead process are missing
	}
	source, err := pawlkafka.Open(ctx, opts, "billing", []string{"orders"}, pawlkafka.Config{})
	if err != nil {
		return err
	}
	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(apply)})
	if err != nil {
		return err
	}
	return c.Run(ctx) // leaves the group when it ends
}

// An Order is the value of a record. A value that is not such JSON becomes a dead letter, because
// no retry can help.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// apply writes one order. Its row and the record of the delivery commit together.
func apply(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
	_, err := tx.Exec(ctx, "insert into orders (id, cents) values ($1, $2)", m.Value.ID, m.Value.Cents)
	return err // retried from the database, with back-off
}
