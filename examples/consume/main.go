// Command consume applies orders from an SQS queue to PostgreSQL, each once, however often it
// arrives.
package main

import (
	"context"
	"os"

	"github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

func main() { service.Main(run) }

func run(ctx context.Context) error {
	pool, cfg, err := service.FromEnv(ctx)
	if err != nil {
		return err
	}
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	source, err := pawlsqs.Open(ctx, awssqs.NewFromConfig(aws), os.Getenv("QUEUE"), pawlsqs.Config{})
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
