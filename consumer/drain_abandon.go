package consumer

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

// errAbandoned is the failure of a delivery whose handler runs on after a stop.
var errAbandoned = errors.New("the consumer stopped, and the handler had not returned although its context had ended; this counts as a crash: let the handler return when its context ends")

// abandon ends the deliveries of handlers that run on after a stop has ended their contexts. Such a
// handler may be why the process stops, and would stop each next process. So the process counts as
// dead, and the delivery is suspected when it has come often enough. A trigger has locked no row of
// Pawl, so its delivery is stored as a suspect at once.
//
// abandon: a crash in it is a death, which counts by itself.
func (c *Consumer) abandon(ctx context.Context, stopped <-chan struct{}) {
	left := c.running.left()
	if len(left) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sourcePatience)
	defer cancel()
	for _, d := range left {
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventWastedWork, Op: "consumer.handle", Err: errAbandoned})
		if c.handler.form != triggered {
			continue
		}
		if o := c.runUntilKnown(ctx, c.asAbandonedTrigger(d)); o.decided {
			c.acknowledge(d, o, stopped)
		}
	}
	if c.handler.form == triggered {
		return
	}
	if err := delivery.NoteDeath(ctx, c.pool, c.queue); err != nil {
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "worker.register", Err: err})
	}
}

// asAbandonedTrigger returns a delivery whose trigger was abandoned by a stop, ready to be stored
// as a suspect. No attempt is charged, as for a job.
func (c *Consumer) asAbandonedTrigger(d pawl.Delivery) item {
	disp := c.untriedDisposition(pawl.EventSuspect)
	disp.store.Suspect, disp.store.Failure = true, errAbandoned
	return item{Delivery: d, sent: d.Key, preset: disp, intent: c.storedTrigger(d)}.asStarted()
}
