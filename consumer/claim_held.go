package consumer

import (
	"context"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// held asks a [pawl.Revocable] source whether a delivery is still ours, and tells it that work
// begins. It asks once for each delivery, as late as possible: after true, a broker that wants to
// move the partition waits for us. If StillHeld panics, the delivery counts as held. A dropped
// delivery is never settled, while one handled twice takes effect once.
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

// drop leaves a delivery to its source, which has taken it back: another receiver has it, or it
// comes again. It asks for each of the deliveries of the same ordering key behind it, and drops
// those that are lost too. Those still held may have been received anew. They are released, because
// otherwise they would take effect before the dropped one.
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
