package flow

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// traceHandlers has each handler work in the trace of whoever sent the delivery, at its first try and at every retry. A batch of
// several works in none, as theirs differ.
func (c *Config) traceHandlers() {
	if next := c.Handler; next != nil {
		c.Handler = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error { return next(traceOf(ctx, d), tx, d) }
	}
	if next := c.BatchHandler; next != nil {
		c.BatchHandler = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
			if len(ds) == 1 {
				ctx = traceOf(ctx, ds[0])
			}
			return next(ctx, tx, ds)
		}
	}
	if next := c.LongHandler; next != nil {
		c.LongHandler = func(ctx context.Context, a *Attempt) error { return next(traceOf(ctx, a.Delivery), a) }
	}
	if next := c.Trigger; next != nil {
		c.Trigger = func(ctx context.Context, d pawl.Delivery) error { return next(traceOf(ctx, d), d) }
	}
}

func traceOf(ctx context.Context, d pawl.Delivery) context.Context {
	if t := d.Trace(); t.Valid() {
		return pawl.WithTrace(ctx, t)
	}
	return ctx
}
