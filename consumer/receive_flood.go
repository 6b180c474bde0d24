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
	// effectWeighs is how many dead letters one effect offsets. If more than one in eleven
	// deliveries takes effect, the consumer is not paused.
	effectWeighs = 10
	// firstProbe and longestDeadProbe bound the pause before a paused consumer receives a delivery.
	firstProbe       = time.Second
	longestDeadProbe = 30 * time.Second
)

// A flood is a circuit breaker that stops receiving while nearly all deliveries become dead
// letters. The cause is then probably not the messages, and they are better kept in the queue or
// log. Each dead letter of this process adds one to count, and each effect subtracts ten. The
// breaker opens when count reaches most.
type flood struct {
	most    int           // not positive: the breaker never opens
	resumed chan struct{} // buffered for one

	mu    sync.Mutex
	count int
	why   error // of the last dead letter

	// The receiving goroutine alone uses these.
	wait time.Duration // before the next probe
	told time.Time
}

// note counts an event of a received or stored delivery.
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

// diedOrTookEffect returns whether an event says that a delivery became a dead letter, or that it
// took effect. A retry says neither, nor does a duplicate that a job owns.
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

// open reports whether receiving is stopped. The caller holds mu.
func (f *flood) open() bool { return f.most > 0 && f.count >= f.most }

func (f *flood) state() (open bool, count int, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open(), f.count, f.why
}

// noting returns hooks that count the events of stored deliveries and call the configured hooks.
func (c *Consumer) noting() pawl.Hooks {
	return pawl.Hooks{OnEvent: func(ctx context.Context, e pawl.Event) {
		c.flood.note(e)
		c.cfg.Hooks.Emit(ctx, e)
	}}
}

// awaitFlood pauses receiving while the breaker is open, and returns how many deliveries to
// receive. After a pause that grows, it returns 1 as a probe.
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
			Err: fmt.Errorf("nearly all deliveries become dead letters (MaxDead, %d): one at a time is received until one takes effect; last reason: %w", count, why)})
	}
	f.wait = min(max(2*f.wait, firstProbe), longestDeadProbe)
	wait, cancel := context.WithTimeout(ctx, pace.Jittered(f.wait))
	defer cancel()
	select {
	case <-f.resumed: // a stale signal from before the breaker opened costs one early probe
	case <-wait.Done():
	}
	c.loop.Tick()
	if open, _, _ := f.state(); !open {
		f.wait = 0
		return all
	}
	return 1
}
