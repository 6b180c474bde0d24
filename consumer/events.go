package consumer

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

func (c *Consumer) emit(ctx context.Context, e pawl.Event) {
	e.Scope = c.cfg.Name
	c.counted.Count(e)
	c.flood.note(e)
	c.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}

// keepCounts adds the counts to the database until ctx ends.
func (c *Consumer) keepCounts(ctx context.Context) {
	c.counted.Keep(ctx, nil, func(err error) { c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "rollup.add", Err: err}) })
}

// addCounts adds the last counts when the consumer has stopped.
func (c *Consumer) addCounts(ctx context.Context) {
	if err := c.counted.Add(context.WithoutCancel(ctx), nil); err != nil {
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "rollup.add", Err: err})
	}
}

func (c *Consumer) emitOf(ctx context.Context, d pawl.Delivery, e pawl.Event) {
	e.Key, e.MessageID = d.Key, d.MessageID
	c.emit(ctx, e)
}

// emitEnded reports a handler that ended the transaction it was lent. If it committed, its writes
// are durable once, and the delivery is a duplicate from then on.
func (c *Consumer) emitEnded(ctx context.Context, d pawl.Delivery, failure error) {
	if errors.Is(failure, txn.ErrEnded) {
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventError, Op: "consumer.handle", Err: failure})
	}
}
