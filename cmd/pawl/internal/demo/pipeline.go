package demo

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/outbox"
)

// A pipeline: each arrow may carry a message twice, each hop has one effect.
//
//	orders ──▶ consumer: rows + event, one transaction ──▶ outbox ──▶ relay ──▶ shipments ──▶ consumer: a row

// shipping is the consumer of the second hop.
func shipping(schema string) string { return schema + "/shipping" }

// hop is the relay and what is behind it.
func (c workerConfig) hop(ctx context.Context, pool *pgxpool.Pool, hooks pawl.Hooks) ([]part, error) {
	sink, err := c.Place.Sink(ctx, shipmentQueue)
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

// order is the first hop: the rows of the business and, in a pipeline, the event, in one transaction.
func (c workerConfig) order(ctx context.Context, tx pgx.Tx, o order) error {
	if err := apply(ctx, tx, c.Schema, o); err != nil || !c.Pipeline {
		return err
	}
	_, err := outbox.Append(ctx, tx, outbox.Event{SinkName: c.Schema, Type: "OrderPlaced", AggregateType: "customer", AggregateID: o.Customer,
		Scope: c.Schema, Key: o.ID, Value: o})
	return err
}

// ship is the second hop.
func (c workerConfig) ship(ctx context.Context, tx pgx.Tx, o order) error {
	_, err := tx.Exec(ctx, inSchema("insert into SCHEMA.shipments (key, customer, cents) values ($1, $2, $3)", c.Schema), o.ID, o.Customer, o.Cents)
	return err
}
