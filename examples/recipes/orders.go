package recipes

import (
	"context"
	"database/sql"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
)

// Schema creates the table. It has no primary key, so that an order placed twice shows.
const Schema = "create table recipe_order (id text not null, cents bigint not null)"

// An Order is the payload of messages and jobs.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// Ship is the job that follows an order.
var Ship = job.Define("ship", job.Defaults[Order]{Queue: "shipping", Key: func(o Order) string { return o.ID }, MaxAttempts: 5})

// An insert writes an order with one of the libraries.
type insert func(ctx context.Context, tx *sql.Tx, o Order) error

// Place writes the order and enqueues the job that follows, in one transaction: a handler's or your
// own.
func Place(ctx context.Context, tx *sql.Tx, o Order, write insert) error {
	if err := write(ctx, tx, o); err != nil {
		return err
	}
	_, err := Ship.Enqueue(ctx, pawl.SQL(tx), o)
	return err
}

// OnMessage places the order of each delivery.
func OnMessage(write insert) consumer.SQLHandler {
	return consumer.HandleSQL(func(ctx context.Context, tx *sql.Tx, m consumer.Message[Order]) error {
		return Place(ctx, tx, m.Value, write)
	})
}

// Import is the job that places an order.
var Import = job.Define("import", job.Defaults[Order]{Queue: "imports"})

// OnJob places the order of each job.
func OnJob(write insert) job.Handler {
	return Import.HandleSQL(func(ctx context.Context, tx *sql.Tx, t job.Task[Order]) error {
		return Place(ctx, tx, t.Value, write)
	})
}
