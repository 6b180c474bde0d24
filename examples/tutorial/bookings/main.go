// Command bookings places orders and books each once. "bookings place ID CENTS" places an order,
// and "bookings" works on the jobs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/service"
)

// An Order is the payload of the jobs.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// booking are the jobs that book an order, one for each order.
var booking = job.Define("book", job.Defaults[Order]{Queue: "ledger", Key: func(o Order) string { return o.ID }})

// place writes an order and enqueues its job. Both commit, or neither does.
func place(ctx context.Context, pool *pgxpool.Pool, o Order) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (id, cents) values ($1, $2)", o.ID, o.Cents); err != nil {
			return err
		}
		_, err := booking.Enqueue(ctx, tx, o)
		return err
	})
}

// pause is how long a booking takes.
var pause, _ = time.ParseDuration(os.Getenv("PAUSE")) // 0 if it is not set

// book writes one row, in the transaction that ends the job.
func book(ctx context.Context, tx pgx.Tx, t job.Task[Order]) error {
	fmt.Printf("%s: attempt %d, crashes %d\n", t.Value.ID, t.Attempt, t.Crashes)
	if _, err := tx.Exec(ctx, "insert into booking (order_id, cents) values ($1, $2)", t.Value.ID, t.Value.Cents); err != nil {
		return err
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
		return place(ctx, pool, o)
	}
	app, err := service.New(pool, cfg)
	if err != nil {
		return err
	}
	app.Worker(job.Config{Handlers: []job.Handler{booking.HandleTx(book)}})
	return app.Run(ctx)
}

// orderFrom reads an order from the arguments.
func orderFrom(args []string) (Order, error) {
	if len(args) != 3 || args[0] != "place" {
		return Order{}, errors.New("usage: bookings [place ID CENTS]")
	}
	cents, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return Order{}, fmt.Errorf("CENTS: %w", err)
	}
	return Order{args[1], cents}, nil
}
