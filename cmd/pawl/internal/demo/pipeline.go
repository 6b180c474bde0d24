package demo

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/outbox"
)

// A pipeline. Each arrow may carry a message twice, and each queue's consumer has one effect.
//
//	orders ──▶ consumer: rows + event, one transaction ──▶ outbox
//	outbox ──▶ relay ──▶ shipments ──▶ consumer: a row

// shipping is the name of the second consumer.
func shipping(schema string) string { return schema + "/shipping" }

// hop returns the relay and the consumer behind it.
func (c workerConfig) hop(ctx context.Context, pool *pgxpool.Pool, hooks pawl.Hooks) ([]part, error) {
	sink, err := c.Location.Sink(ctx, shipmentQueue)
	if err != nil {
		return nil, err
	}
	relay, err := outbox.NewRelay(pool, outbox.Config{Sink: sink, SinkName: c.Schema, MaxPublish: 10, Concurrency: 50,
		Lease: lease, Backoff: backoff, Name: c.name(), Hooks: hooks})
	if err != nil {
		return nil, err
	}
	second, err := c.consumer(ctx, pool, hooks, shipmentQueue, shipping(c.Schema), c.handler(c.ship))
	return []part{relay, second}, err
}

// order handles the first queue: the business rows and, in a pipeline, the event, in one
// transaction.
func (c workerConfig) order(ctx context.Context, tx pgx.Tx, o order) error {
	if err := apply(ctx, tx, c.Schema, o); err != nil || !c.Pipeline {
		return err
	}
	_, err := outbox.Append(ctx, tx, outbox.Event{SinkName: c.Schema, Type: "OrderPlaced", AggregateType: "customer", AggregateID: o.Customer,
		Scope: c.Schema, Key: o.ID, Value: o})
	return err
}

func (c workerConfig) ship(ctx context.Context, tx pgx.Tx, o order) error {
	_, err := tx.Exec(ctx, inSchema("insert into SCHEMA.shipments (key, customer, cents) values ($1, $2, $3)", c.Schema), o.ID, o.Customer, o.Cents)
	return err
}
