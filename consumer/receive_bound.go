package consumer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/pace"
)

const (
	defaultStored = 100_000
	// countEvery is how often stored deliveries are counted while this process stores some and the
	// bound is far. The pause after a count is at least countShare times its duration, up to
	// longestRest. countPatience bounds one count.
	countEvery    = 5 * time.Second
	countShare    = 20
	longestRest   = 30 * time.Second
	countPatience = 5 * time.Second
	// tellEvery is how often the event that receiving is paused is repeated.
	tellEvery = time.Minute
)

// A bound limits the open stored deliveries of a consumer, in all its processes together.
type bound struct {
	most   int          // not positive: no bound
	stored atomic.Int64 // by this process since the last count; 1 before the first

	open          int       // at the last count
	soonest, next time.Time // times of the next count: if the bound may be reached, and otherwise
	told          time.Time // when the pause was last reported
}

// due reports whether to count the stored deliveries, and how long to wait first. If this process
// has stored some, a count is due in time, or when those may reach the bound.
func (b *bound) due() (wait time.Duration, due bool) {
	stored := int(b.stored.Load())
	switch {
	case b.most <= 0 || stored == 0:
		return 0, false
	case b.open+stored >= b.most:
		return time.Until(b.soonest), true
	}
	return 0, time.Now().After(b.next)
}

// awaitBound pauses receiving while the bound is reached: a log or a queue is the cheaper place to
// wait. Receiving resumes when a tenth is done. If counting fails, the last count holds.
func (c *Consumer) awaitBound(ctx context.Context) {
	b := &c.bound
	wait, due := b.due()
	if !due {
		return
	}
	pace.Sleep(ctx, wait)
	for paused := false; ctx.Err() == nil; c.loop.Tick() {
		wait = c.countStored(ctx)
		paused = b.open >= b.most || paused && b.open > b.most-b.most/10
		if !paused {
			return
		}
		b.stored.Store(1) // progress shows only in another count
		if time.Since(b.told) >= tellEvery {
			b.told = time.Now()
			c.emit(ctx, pawl.Event{Kind: pawl.EventReceivePaused, Op: "consumer.receive", Count: b.open,
				Err: fmt.Errorf("%d stored deliveries are open (MaxStored): nothing is received until a tenth of them is done", b.most)})
		}
		pace.Sleep(ctx, pace.Jittered(wait))
	}
}

// countStored counts the open deliveries up to the bound, and returns the pause after it.
func (c *Consumer) countStored(ctx context.Context) (wait time.Duration) {
	b, start := &c.bound, time.Now()
	stored := b.stored.Swap(0)
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	open, err := delivery.Open(ctx, c.pool, c.cfg.Name, c.queue, b.most)
	if err != nil {
		b.stored.Add(stored) // they are not in the count
	} else {
		b.open = open
	}
	rest := min(countShare*time.Since(start), longestRest)
	wait = max(countEvery, rest)
	b.soonest, b.next = time.Now().Add(rest), time.Now().Add(wait)
	return wait
}
