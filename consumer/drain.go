package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

// abandonAfter is how long a handler may take to return after its context is cancelled, before Run
// abandons it. The database alone then decides its transaction.
const abandonAfter = 5 * time.Second

// handleAll runs the handling goroutines until work is closed and empty, or ShutdownTimeout ends.
func (c *Consumer) handleAll(ctx context.Context, work <-chan pawl.Delivery, stopped <-chan struct{}) {
	handling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var handlers sync.WaitGroup
	for range c.atOnce() {
		handlers.Go(func() {
			for d := range work {
				if c.handler.form == many {
					c.finishBatch(ctx, handling, c.batchFrom(d, work), stopped)
					continue
				}
				c.finishGroup(ctx, handling, d, stopped)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		handlers.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	if within(done, c.cfg.ShutdownTimeout) {
		return
	}
	cancel()
	if !within(done, abandonAfter) {
		c.abandon(ctx, stopped)
		c.giveBack(ctx, 0, c.groups.abandon()...)
	}
}

// finishBatch acknowledges or releases each delivery of a batch. Deliveries with an ordering key or
// a semantic key are delivered singly.
func (c *Consumer) finishBatch(stopping, ctx context.Context, all []pawl.Delivery, stopped <-chan struct{}) {
	var ds, ordered []pawl.Delivery
	for _, d := range all {
		if d.OrderingKey != "" || d.SemanticKey != "" {
			ordered = append(ordered, d)
			continue
		}
		ds = append(ds, d)
	}
	outcomes := c.deliverMany(ctx, ds)
	c.loop.Tick()
	for i, o := range outcomes {
		switch {
		case o.lost:
			c.drop(ctx, ds[i])
		case !o.decided:
			c.giveBack(ctx, o.wait, ds[i])
		default:
			c.acknowledge(ds[i], o, stopped)
		}
	}
	for _, d := range ordered {
		c.finishGroup(stopping, ctx, d, stopped)
	}
}

// finishGroup delivers d and then those behind it, until one is released or stopping ends.
func (c *Consumer) finishGroup(stopping, ctx context.Context, d pawl.Delivery, stopped <-chan struct{}) {
	for found := true; found; {
		o := c.deliver(ctx, d)
		c.loop.Tick()
		switch {
		case o.lost:
			behind := c.groups.disband(d)[1:]
			c.drop(ctx, d, behind...)
			return
		case !o.decided:
			c.giveBack(ctx, o.wait, c.groups.disband(d)...)
			return
		}
		c.acknowledge(d, o, stopped)
		if d, found = c.groups.next(d); found && stopping.Err() != nil {
			c.giveBack(ctx, 0, c.groups.disband(d)...)
			return
		}
	}
}

func within(done <-chan struct{}, limit time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}
