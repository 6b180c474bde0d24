package consumer

import (
	"context"
	"sync"

	"github.com/pawl-go/pawl"
)

// leastParked is how many deliveries of this process may stand behind another one of their group. From there on nothing more is received: a
// crash would leave them all invisible. If the source hands out large batches, two of them may.
const leastParked = 100

func maxParked(receiveBatch int) int { return max(leastParked, 2*receiveBatch) }

// groups keeps the deliveries of one ordering key in the order received: the first is handled, the others stand behind it. If
// one goes back to the source so do those behind it, which it would come after otherwise.
type groups struct {
	most   int // may be parked
	mu     sync.Mutex
	behind map[string][]pawl.Delivery // of the keys of which one is being handled
	parked int
	room   chan struct{} // closed when parked has shrunk; nil if nothing waits
}

// join takes a batch as it was received and returns those that may be handled now. The whole batch at once: of a group that has
// just gone back, none may be let through.
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

// disband ends the turn of a delivery that goes back, and returns it with those behind it, which go back too.
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

// abandon returns everything that stands behind a delivery whose handler has not ended in time. Its transaction has the lane until it
// ends, so these cannot be handled before, wherever they are received.
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

// awaitRoom waits until fewer than most stand behind others, or ctx ends.
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
