package consumer

import (
	"context"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// held asks a source that may take deliveries back whether this one is still ours, and tells it
// that work on it begins. It is asked once for each delivery, and as late as possible: after true,
// a broker that wants to move it waits for us. If the question panics the delivery counts as ours:
// what is dropped is never settled, and what is handled twice takes effect once.
func (c *Consumer) held(ctx context.Context, d pawl.Delivery) bool {
	source, may := c.cfg.Source.(pawl.Revocable)
	if !may {
		return true
	}
	held, err := callback.Get("Source.StillHeld", func() bool { return source.StillHeld(d) })
	if err != nil {
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventError, Op: "consumer.begin", Err: err})
	}
	return held || err != nil
}

// drop leaves a delivery to its source, which has taken it back: it is another receiver's, or comes again. Those of its ordering key that
// stand behind it are asked for one by one. What is lost is dropped too. What is still held may have been received anew, and is given
// back: otherwise it would take effect before the one that is dropped here.
func (c *Consumer) drop(ctx context.Context, first pawl.Delivery, behind ...pawl.Delivery) {
	lost, held := []pawl.Delivery{first}, []pawl.Delivery(nil)
	for _, d := range behind {
		if c.held(ctx, d) {
			held = append(held, d)
			continue
		}
		lost = append(lost, d)
	}
	for _, d := range lost {
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventHandleLost, Op: "consumer.begin"})
	}
	c.giveBack(ctx, 0, held...)
}
