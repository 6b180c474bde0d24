package consumer

import (
	"context"
	"sync"

	"github.com/pawl-go/pawl"
)

// leastParked is how many deliveries of this process may wait behind others of their group before
// receiving stops. A crash leaves them all invisible. With large batches the bound is two batches.
const leastParked = 100

func maxParked(receiveBatch int) int { return max(leastParked, 2*receiveBatch) }

// groups keeps the deliveries of one ordering key in the order received: the first is handled, and
// the others wait behind it. If one is released to the source, those behind it are released too,
// because they would overtake it otherwise.
type groups struct {
	most   int // bound of parked
	mu     sync.Mutex
	behind map[string][]pawl.Delivery // by ordering key that is being handled
	parked int
	room   chan struct{} // closed when parked shrinks; nil: no goroutine waits
}

// join takes a received batch and returns the deliveries that may be handled now. The whole batch
// joins at once: after a group is released, none of its later deliveries may pass.
func (g *groups) join(batch []pawl.Delivery) (ready []pawl.Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range batch {
		if d.OrderingKey == "" {
			ready = append(ready, d)
			continue
		}
		waiting, busy := g.behind[d.OrderingKey]
		if busy {
			g.behind[d.OrderingKey] = append(waiting, d)
			g.parked++
			continue
		}
		if g.behind == nil {
			g.behind = map[string][]pawl.Delivery{}
		}
		g.behind[d.OrderingKey] = nil
		ready = append(ready, d)
	}
	return ready
}

// next ends the turn of a delivery whose outcome is in the database, and returns the one behind it.
func (g *groups) next(d pawl.Delivery) (next pawl.Delivery, found bool) {
	if d.OrderingKey == "" {
		return next, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := g.behind[d.OrderingKey]
	if len(waiting) == 0 {
		delete(g.behind, d.OrderingKey)
		return next, false
	}
	g.behind[d.OrderingKey] = waiting[1:]
	g.shrink(1)
	return waiting[0], true
}

// disband returns a delivery that is released, and those behind it, which must be released too.
func (g *groups) disband(d pawl.Delivery) []pawl.Delivery {
	all := []pawl.Delivery{d}
	if d.OrderingKey == "" {
		return all
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := g.behind[d.OrderingKey]
	delete(g.behind, d.OrderingKey)
	g.shrink(len(waiting))
	return append(all, waiting...)
}

// abandon returns all deliveries that wait behind others, when a handler has not ended in time. The
// handler's transaction holds the lane until it ends, so no receiver can handle them before.
func (g *groups) abandon() (left []pawl.Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, waiting := range g.behind {
		left = append(left, waiting...)
		g.behind[key] = nil
	}
	g.shrink(len(left))
	return left
}

func (g *groups) shrink(by int) {
	g.parked -= by
	if by > 0 && g.room != nil {
		close(g.room)
		g.room = nil
	}
}

// awaitRoom waits until fewer than most deliveries are parked, or ctx ends.
func (g *groups) awaitRoom(ctx context.Context) {
	for {
		g.mu.Lock()
		if g.parked < g.most {
			g.mu.Unlock()
			return
		}
		if g.room == nil {
			g.room = make(chan struct{})
		}
		room := g.room
		g.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return
		}
	}
}
