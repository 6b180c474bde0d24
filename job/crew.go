package job

import (
	"slices"
	"sync"
)

// idleRunners is how many goroutines a crew keeps for later.
const idleRunners = 64

// A crew runs the attempts of a line on goroutines that it uses again. A runner takes attempt after attempt. One more is woken or
// started only while attempts wait and the last one that was has begun: handlers that return at once need a few runners, and handlers
// that block get one each. An attempt waits for no handler, only for goroutines to be scheduled.
type crew struct {
	mu       sync.Mutex
	wake     sync.Cond
	waiting  []*attempt
	next     int  // of waiting
	idle     int  // runners that wait to be woken
	starting bool // a runner was woken or started, and has not begun
	staying  bool // idle runners stay
}

func newCrew() *crew {
	c := &crew{}
	c.wake.L = &c.mu
	return c
}

// stay lets idle runners stay, or sends them away.
func (c *crew) stay(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.staying = on
	if !on {
		c.wake.Broadcast()
	}
}

// add has attempts run, in their order.
func (c *crew) add(all ...*attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting, c.next = append(slices.Delete(c.waiting, 0, c.next), all...), 0
	c.more()
}

// more sees to it that a runner takes what waits.
func (c *crew) more() {
	if c.next == len(c.waiting) || c.starting {
		return
	}
	c.starting = true
	if c.idle > 0 {
		c.wake.Signal()
	} else {
		go c.run()
	}
}

// run is one runner. If what it runs exits the goroutine, another one takes its place.
func (c *crew) run() {
	c.mu.Lock()
	c.starting = false
	for a := c.take(); a != nil; a = c.take() {
		c.mu.Unlock()
		a.run()
		c.mu.Lock()
	}
	c.mu.Unlock()
}

// take returns the next attempt; nil if the runner is to go. It is called with the lock held.
func (c *crew) take() *attempt {
	for c.next == len(c.waiting) {
		c.waiting, c.next = c.waiting[:0], 0
		if !c.staying || c.idle >= idleRunners {
			return nil
		}
		c.idle++
		c.wake.Wait()
		c.idle--
		c.starting = false
	}
	a := c.waiting[c.next]
	c.waiting[c.next] = nil
	c.next++
	c.more()
	return a
}
