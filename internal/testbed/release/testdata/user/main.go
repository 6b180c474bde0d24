// Command user is a user's program in its own module. It imports the published packages.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/prompawl"
	"github.com/pawl-go/pawl/schedule/cron"
	"github.com/pawl-go/pawl/schema"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	database, queue := os.Getenv("DATABASE_URL"), os.Getenv("QUEUE")
	if database == "" {
		fmt.Printf("set DATABASE_URL; this program needs schema version %d\n", schema.Newest())
		return
	}
	if err := run(ctx, database, queue); err != nil {
		log.Fatal(err)
	}
}

type order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

func run(ctx context.Context, database, queue string) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := cron.Parse("0 3 * * *", "Europe/Berlin"); err != nil {
		return err
	}
	source, err := pawlsqs.Open(ctx, awssqs.NewFromConfig(aws.Config{}), queue, pawlsqs.Config{})
	if err != nil {
		return err
	}
	events := prompawl.NewEvents(observe.EventOptions{})
	prometheus.MustRegister(events)
	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Hooks: events.Hooks(), Handler: consumer.HandleTx(place)})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func place(ctx context.Context, tx pgx.Tx, m consumer.Message[order]) error {
	_, err := tx.Exec(ctx, "insert into orders (id, cents) values ($1, $2)", m.Value.ID, m.Value.Cents)
	return err
}
