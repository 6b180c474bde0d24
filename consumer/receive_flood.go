package consumer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
)

const (
	defaultDead = 1000
	// effectWeighs is how many dead letters one effect makes up for: a consumer of whose deliveries
	// more than one in eleven takes effect is not paused.
	effectWeighs = 10
	// firstProbe and longestDeadProbe bound the pause before a paused consumer receives one more
	// delivery.
	firstProbe       = time.Second
	longestDeadProbe = 30 * time.Second
)

// A flood is the breaker that stops the receiving while nearly all deliveries become dead letters:
// the fault is not theirs then, and a queue, or a log, is the better place for them. Each dead
// letter of this process counts one, each effect takes ten away. At most, it is open.
type flood struct {
	most    int           // it never opens if this is not positive
	resumed chan struct{} // has room for one

	mu    sync.Mutex
	count int
	why   error // of the last dead letter

	// Of the receiving goroutine.
	wait time.Duration // before the next probe
	told time.Time
}

// note counts what became of deliveries: of those received, and of those that were stored before.
func (f *flood) note(e pawl.Event) {
	died, tookEffect := diedOrTookEffect(e)
	if !died && !tookEffect {
		return
	}
	n := max(e.Count, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if died {
		f.count, f.why = min(f.count+n, max(f.most, 0)), e.Err
	} else {
		open := f.open()
		f.count = max(f.count-effectWeighs*n, 0)
		if open && !f.open() {
			select {
			case f.resumed <- struct{}{}:
			default:
			}
		}
	}
}

// diedOrTookEffect reads from an event whether a delivery became a dead letter, or took effect. What
// is tried again says neither yet, nor does a duplicate that belongs to a job.
func diedOrTookEffect(e pawl.Event) (died, tookEffect bool) {
	switch e.Kind {
	case pawl.EventInvalid, pawl.EventMismatch, pawl.EventDeliveryStale, pawl.EventGap, pawl.EventFailed:
		return e.Op == "consumer.store" || e.Op == "job.fail", false
	case pawl.EventDuplicateSkipped:
		return false, e.JobID == 0
	case pawl.EventSucceeded, pawl.EventGuardAlreadyHandled, pawl.EventSuperseded:
		return false, true
	}
	return false, false
}

// open reports whether nothing is to be received. The caller has mu.
func (f *flood) open() bool { return f.most > 0 && f.count >= f.most }

// state is open, with the number of dead letters and the reason of the last.
func (f *flood) state() (open bool, count int, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open(), f.count, f.why
}

// noting returns hooks that note what becomes of stored deliveries, and call the configured ones.
func (c *Consumer) noting() pawl.Hooks {
	return pawl.Hooks{OnEvent: func(ctx context.Context, e pawl.Event) {
		c.flood.note(e)
		c.cfg.Hooks.Emit(ctx, e)
	}}
}

// awaitFlood holds the receiving while nearly all deliveries become dead letters, and returns how
// many to receive: one, to see whether that has ended, after a pause that grows.
func (c *Consumer) awaitFlood(ctx context.Context) (receive int) {
	f, all := &c.flood, max(c.info.ReceiveBatch, c.handler.batchSize)
	open, count, why := f.state()
	if !open {
		f.wait = 0
		return all
	}
	if time.Since(f.told) >= tellEvery {
		f.told = time.Now()
		c.emit(ctx, pawl.Event{Kind: pawl.EventReceivePaused, Op: "consumer.receive", Count: count,
			Err: fmt.Errorf("nearly all deliveries become dead letters (MaxDead, %d): one at a time is received until one takes effect; the reason of the last: %w", count, why)})
	}
	f.wait = min(max(2*f.wait, firstProbe), longestDeadProbe)
	wait, cancel := context.WithTimeout(ctx, pace.Jittered(f.wait))
	defer cancel()
	select {
	case <-f.resumed: // or by what was there before it opened, which costs a probe
	case <-wait.Done():
	}
	c.loop.Tick()
	if open, _, _ := f.state(); !open {
		f.wait = 0
		return all
	}
	return 1
}
