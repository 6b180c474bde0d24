// Command consume applies orders from an SQS queue to PostgreSQL, each once, however often it
// arrives.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("QUEUE")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, database, queue string) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	source, err := pawlsqs.Open(ctx, awssqs.NewFromConfig(aws), queue, pawlsqs.Config{})
	if err != nil {
		return err
	}
	consumer, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(apply)})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
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
