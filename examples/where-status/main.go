// Command where-status ships orders that are rows of its own table. A message names the order, and
// the row's status says whether it was shipped. Pawl stores nothing of the message, and the table
// has no column of Pawl's.
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

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

// Schema is the schema of an application before it used Pawl.
const Schema = `
create table orders (
  id            bigint primary key,
  status        text not null default 'pending' check (status in ('pending', 'processing', 'completed', 'error')),
  claimed_at    timestamptz,
  completed_at  timestamptz,
  last_error    text,
  attempt_count int not null default 0,
  created_at    timestamptz not null default clock_timestamp()
);
create table shipment (order_id bigint not null, at timestamptz not null default clock_timestamp());
`

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
	return consume(ctx, pool, awssqs.NewFromConfig(aws), queue, guard.SweeperConfig{})
}

func consume(ctx context.Context, pool *pgxpool.Pool, client *awssqs.Client, queue string, sweeping guard.SweeperConfig) error {
	source, err := pawlsqs.Open(ctx, client, queue, pawlsqs.Config{})
	if err != nil {
		return err
	}
	w, err := newWorker(pool, sweeping)
	if err != nil {
		return err
	}
	consumer, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.Trigger(w.handle)})
	if err != nil {
		return err
	}
	go w.sweeper.Run(ctx)
	return consumer.Run(ctx)
}

// A worker ships orders, each once.
type worker struct {
	rows    *guard.Rows
	sweeper *guard.Sweeper
}

// newWorker makes a worker, and the sweeper that retries failed orders and handles orders without a
// message.
func newWorker(pool *pgxpool.Pool, sweeping guard.SweeperConfig) (*worker, error) {
	rows, err := guard.New(pool, guard.Table{Name: "orders", CreatedAt: "created_at"})
	if err != nil {
		return nil, err
	}
	w := &worker{rows: rows}
	w.sweeper, err = rows.Sweeper(sweeping, w.ship)
	return w, err
}

// handle takes the order's id from the message. The message is deleted once the row holds the
// outcome.
func (w *worker) handle(ctx context.Context, m consumer.Message[named]) error {
	return w.ship(ctx, m.Value.Order.String())
}

// A named is the payload of a message. A payload that does not decode becomes a dead letter.
type named struct {
	Order json.Number `json:"order"`
}

// ship takes the order from pending to completed, in one transaction with its shipment.
func (w *worker) ship(ctx context.Context, order string) error {
	return w.rows.Once(ctx, order, func(ctx context.Context, tx pgx.Tx) (any, error) {
		_, err := tx.Exec(ctx, "insert into shipment (order_id) values ($1)", order)
		return nil, err
	})
}
