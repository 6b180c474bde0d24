package consumer

import (
	"context"
	"errors"
	"sync"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

// running holds the deliveries of handlers that have not returned.
type running struct {
	mu  sync.Mutex
	all map[*[]pawl.Delivery]struct{}
}

// enter adds the deliveries of a handler until it calls leave.
func (r *running) enter(ds ...pawl.Delivery) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*[]pawl.Delivery]struct{}{}
	}
	r.all[&ds] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, &ds)
	}
}

func (r *running) left() (all []pawl.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ds := range r.all {
		all = append(all, *ds...)
	}
	return all
}

// errAbandoned is the failure of a delivery whose handler runs on after a stop.
var errAbandoned = errors.New("the consumer stopped, and the handler had not returned although its context had ended; this counts as a crash: let the handler return when its context ends")

// abandon ends the deliveries of handlers that run on after a stop has ended their contexts. Such a
// handler may be why the process stops, and would stop each next process. So the process counts as
// dead, and the delivery is suspected when it has come often enough. A trigger's delivery has no row
// that the handler has locked. It is stored as a suspect at once.
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
