// Command consume applies orders from an SQS queue to PostgreSQL, each once, however often it arrives.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/flow"
	"github.com/pawl-go/pawl/transport/sqs"
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
	source, err := sqs.Open(ctx, awssqs.NewFromConfig(aws), queue, sqs.Config{})
	if err != nil {
		return err
	}
	consumer, err := flow.New(pool, flow.Config{Consumer: "orders", Source: source, Handler: apply})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

// apply writes one order. It commits together with the record that the order was seen, or not at all.
func apply(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
	var order struct {
		ID    string `json:"id"`
		Cents int64  `json:"cents"`
	}
	if err := json.Unmarshal(d.Body, &order); err != nil {
		return pawl.Final(err) // no retry can help: a dead letter, with its payload
	}
	_, err := tx.Exec(ctx, "insert into orders (id, cents) values ($1, $2)", order.ID, order.Cents)
	return err // any other error: retried from the database, with back-off
}
