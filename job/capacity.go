package job

import (
	"context"
	"sync"
	"time"
)

// capacity counts the free slots of a queue. Slots given back together can be taken together. Given
// back singly, a batch of a hundred would be followed by a hundred batches of one.
//
// It also keeps attempts whose handlers have returned, for the producer's next exchange.
type capacity struct {
	mu         sync.Mutex
	size       int
	free       int
	given      chan struct{} // closed by wakeWaiters; nil: no waiter
	keeps      bool          // the producer takes done attempts
	exchanging bool          // the producer's next exchange is near
	done       []*attempt
	enough     int // waits end at this many free slots and done attempts
}

func newCapacity(size int) *capacity { return &capacity{size: size, free: size} }

// take waits for one slot and takes up to limit. It returns 0 if ctx has ended.
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

// gather waits until enough slots are free or their jobs are done, at most for patience.
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

// takeDone waits for a free slot or a done attempt, and takes up to limit of both until ctx ends.
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

// hand keeps an attempt for the producer's next exchange. It returns false if no exchange is near.
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

// rest returns the done attempts when no exchange is near. Until the next gather, hand keeps none.
func (c *capacity) rest() (done []*attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done, c.done, c.exchanging = c.done, nil, false
	return done
}

// takeAll takes slots until it has all of them or ctx ends.
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

// wakeWaiters ends the waits of take, gather and takeDone. The caller holds mu.
func (c *capacity) wakeWaiters() {
	if c.given != nil {
		close(c.given)
		c.given = nil
	}
}

// next returns the channel that the next wakeWaiters closes. The caller holds mu.
func (c *capacity) next() <-chan struct{} {
	if c.given == nil {
		c.given = make(chan struct{})
	}
	return c.given
}
