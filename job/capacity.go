package job

import (
	"context"
	"sync"
	"time"
)

// capacity counts the slots in which jobs may still be started. Slots that are given back together can
// be taken together: given back one by one, a batch of a hundred would be followed by a hundred
// batches of one.
//
// It also keeps the attempts whose handlers are done and whose ends wait for the producer's next
// exchange.
type capacity struct {
	mu         sync.Mutex
	size       int
	free       int
	given      chan struct{} // closed at the next give; nil: nobody waits
	keeps      bool          // the producer takes what is done
	exchanging bool          // and it comes round soon
	done       []*attempt
	enough     int // of slots that are free, or whose jobs are done: waits end
}

func newCapacity(size int) *capacity { return &capacity{size: size, free: size} }

// take waits for one slot, takes up to limit, and returns how many it took: none if ctx has ended.
func (c *capacity) take(ctx context.Context, limit int) (taken int) {
	for ctx.Err() == nil {
		c.mu.Lock()
		taken, given := min(c.free, limit), c.next()
		c.free -= taken
		c.mu.Unlock()
		if taken > 0 {
			return taken
		}
		select {
		case <-given:
		case <-ctx.Done():
		}
	}
	return 0
}

// gather waits until so many slots are free or their jobs are done, but not for long.
func (c *capacity) gather(ctx context.Context, enough int, patience time.Duration) {
	var late <-chan time.Time
	for {
		c.mu.Lock()
		ready, given := c.free+len(c.done), c.next()
		c.enough = min(enough, c.size)
		c.exchanging = c.keeps
		c.mu.Unlock()
		if ready >= min(enough, c.size) {
			return
		}
		if late == nil {
			late = time.After(patience)
		}
		select {
		case <-given:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// takeDone waits for one slot or one attempt whose job is done, and takes up to limit of each; nothing if ctx has ended.
func (c *capacity) takeDone(ctx context.Context, limit int) (done []*attempt, taken int) {
	for ctx.Err() == nil {
		c.mu.Lock()
		n := min(len(c.done), limit)
		done, c.done = c.done[:n:n], c.done[n:]
		taken = min(c.free, limit-n)
		c.free -= taken
		c.enough = 1
		given := c.next()
		c.mu.Unlock()
		if n+taken > 0 {
			return done, taken
		}
		select {
		case <-given:
		case <-ctx.Done():
		}
	}
	return nil, 0
}

// hand keeps an attempt for the producer's next exchange. It reports false if none comes soon.
func (c *capacity) hand(a *attempt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.exchanging {
		return false
	}
	c.done = append(c.done, a)
	if c.free+len(c.done) >= c.enough {
		c.wakeWaiters()
	}
	return true
}

// rest returns what is done when no exchange comes soon. Until the next gather nothing is kept.
func (c *capacity) rest() (done []*attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done, c.done, c.exchanging = c.done, nil, false
	return done
}

// takeAll takes slot after slot until it has them all or ctx ends.
func (c *capacity) takeAll(ctx context.Context) (taken int) {
	for taken < c.size {
		n := c.take(ctx, c.size-taken)
		if n == 0 {
			break
		}
		taken += n
	}
	return taken
}

func (c *capacity) give(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free += n
	c.wakeWaiters()
}

// wakeWaiters ends the waits of take, gather and takeDone. The caller holds mu, as of next.
func (c *capacity) wakeWaiters() {
	if c.given != nil {
		close(c.given)
		c.given = nil
	}
}

// next returns what the next give closes.
func (c *capacity) next() <-chan struct{} {
	if c.given == nil {
		c.given = make(chan struct{})
	}
	return c.given
}
