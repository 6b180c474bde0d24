// Command shipments publishes an event for each order that is shipped. "shipments ship ID CENTS"
// ships an order, and "shipments" publishes the events to the SQS queue in QUEUE.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

// An Order is the payload of the events.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// ship appends the event and writes the shipment. Both commit, or neither does.
func ship(ctx context.Context, pool *pgxpool.Pool, o Order) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := outbox.Append(ctx, tx, outbox.Event{Type: "OrderShipped", AggregateType: "order", AggregateID: o.ID, Value: o})
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "insert into shipment (order_id, cents) values ($1, $2)", o.ID, o.Cents)
		return err
	})
}

func main() { service.Main(run) }

func run(ctx context.Context) error {
	pool, cfg, err := service.FromEnv(ctx)
	if err != nil {
		return err
	}
	if len(os.Args) > 1 {
		o, err := orderFrom(os.Args[1:])
		if err != nil {
			return err
		}
		return ship(ctx, pool, o)
	}
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	sink, err := pawlsqs.OpenSink(ctx, awssqs.NewFromConfig(aws), os.Getenv("QUEUE"), pawlsqs.SinkConfig{})
	if err != nil {
		return err
	}
	app, err := service.New(pool, cfg)
	if err != nil {
		return err
	}
	app.Relay(outbox.Config{Sink: sink})
	return app.Run(ctx)
}

// orderFrom reads an order from the arguments.
func orderFrom(args []string) (Order, error) {
	if len(args) != 3 || args[0] != "ship" {
		return Order{}, errors.New("usage: shipments [ship ID CENTS]")
	}
	cents, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return Order{}, fmt.Errorf("CENTS: %w", err)
	}
	return Order{args[1], cents}, nil
}
