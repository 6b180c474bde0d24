package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// A Call is one call of a handler, as middleware sees it.
type Call struct {
	Consumer   string
	Deliveries []pawl.Delivery // exactly one, except in the batch forms
	// Tx is nil in the forms without a transaction. For database/sql it is that of the *sql.Tx.
	Tx pgx.Tx
}

// Middleware runs around every call of a handler, at every try. It must call next once, and return
// its error or another. It counts towards the handler's Timeout, and its writes through Call.Tx
// commit or roll back with the handler's. The payload is decoded inside next.
type Middleware func(ctx context.Context, c Call, next func(context.Context) error) error

type form int

const (
	single    form = iota + 1 // one delivery, in the transaction of its claim or of its job
	many                      // many deliveries, in one transaction
	leased                    // from the database, without a transaction
	triggered                 // on arrival, without a claim
)

type txCall func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error

// settings are the form, the policy and the function of a handler.
type settings struct {
	form form
	Policy
	mode      Mode
	exclusive func(pawl.Delivery) string
	gate      *SequenceGate
	batchSize int

	tx      txCall // for single and many
	sql     bool   // the function takes a *sql.Tx
	try     func(context.Context, *try) error
	trigger func(context.Context, pawl.Delivery) error
}

// around puts the sender's trace and the middleware around every call.
func (s *settings) around(consumer string, all []Middleware) {
	call := func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery, next func(context.Context) error) error {
		if len(ds) == 1 {
			ctx = traceOf(ctx, ds[0])
		}
		for i := len(all) - 1; i >= 0; i-- {
			around, further := all[i], next
			next = func(ctx context.Context) error { return around(ctx, Call{consumer, ds, tx}, further) }
		}
		return next(ctx)
	}
	if inner := s.tx; inner != nil {
		s.tx = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
			return call(ctx, tx, ds, func(ctx context.Context) error { return inner(ctx, tx, ds) })
		}
	}
	if inner := s.try; inner != nil {
		s.try = func(ctx context.Context, t *try) error {
			return call(ctx, nil, []pawl.Delivery{t.delivery}, func(ctx context.Context) error { return inner(ctx, t) })
		}
	}
	if inner := s.trigger; inner != nil {
		s.trigger = func(ctx context.Context, d pawl.Delivery) error {
			return call(ctx, nil, []pawl.Delivery{d}, func(ctx context.Context) error { return inner(ctx, d) })
		}
	}
}

// traceOf returns ctx with the trace of the sender.
func traceOf(ctx context.Context, d pawl.Delivery) context.Context {
	if t := d.Trace(); t.Valid() {
		return pawl.WithTrace(ctx, t)
	}
	return ctx
}
