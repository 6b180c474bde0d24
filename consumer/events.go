package consumer

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

func (c *Consumer) emit(ctx context.Context, e pawl.Event) {
	e.Scope = c.cfg.Name
	c.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}

func (c *Consumer) emitOf(ctx context.Context, d pawl.Delivery, e pawl.Event) {
	e.Key, e.MessageID = d.Key, d.MessageID
	c.emit(ctx, e)
}

// emitEnded tells of a handler that committed the transaction it was lent: what it wrote before is durable, once, and the delivery is a
// duplicate from then on.
func (c *Consumer) emitEnded(ctx context.Context, d pawl.Delivery, failure error) {
	if errors.Is(failure, txn.ErrEnded) {
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventTrouble, Op: "consumer.handle", Err: failure})
	}
}
