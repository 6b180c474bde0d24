package pawlsqs

import (
	"context"
	"sync"
	"time"
)

// A heart keeps messages invisible from their receive until they are let go. Prefetched messages age like others, so
// it does not wait until a handler starts. One goroutine beats while something is held.
//
// Times are monotonic: a clock that is set does not move a beat.
type heart struct {
	visibility time.Duration
	interval   time.Duration // a third of visibility: two beats may fail
	extend     batchCall
	counters   *counters
	lost       func(n int) // tells of handles that died

	mu      sync.Mutex
	held    map[string]*lease // by receipt handle
	beating bool              // the goroutine runs
	empty   chan struct{}     // tells it that nothing is held any more
	flying  map[string]bool   // receipts in the running call
	stored  chan struct{}     // closed when that call is over
}

type lease struct {
	polled time.Time
	due    time.Time // of the next extension
}

func newHeart(visibility time.Duration, extend batchCall, c *counters, lost func(n int)) *heart {
	return &heart{visibility: visibility, interval: visibility / 3, extend: extend, counters: c, lost: lost,
		held: map[string]*lease{}, empty: make(chan struct{}, 1)}
}

func (h *heart) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}

func (h *heart) hold(a *arrival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[a.receipt] = &lease{polled: a.polled, due: time.Now().Add(h.interval)}
	if !h.beating {
		h.beating = true
		go h.beat()
	}
}

// letGo stops extending. If an extension of one of the messages is on its way, the channel tells when it is over.
func (h *heart) letGo(as []*arrival) (stored <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range as {
		delete(h.held, a.receipt)
		if h.flying[a.receipt] {
			stored = h.stored
		}
	}
	if len(h.held) == 0 {
		select {
		case h.empty <- struct{}{}:
		default: // told already
		}
	}
	return stored
}

func (h *heart) beat() {
	for {
		batch, pause, stop := h.next(time.Now())
		switch {
		case stop:
			return
		case len(batch) > 0:
			h.extendBatch(batch)
		default:
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-h.empty:
				timer.Stop()
			}
		}
	}
}

// next picks up to ten messages to extend, and lets go of those that reached twelve hours. If one is due, others that
// soon will be go along. With none due it answers how long to pause; with none held, to stop.
func (h *heart) next(now time.Time) (batch []entry, pause time.Duration, stop bool) {
	lost := 0
	h.mu.Lock()
	defer h.unlock(&lost)
	pause = h.interval
	for receipt, l := range h.held {
		if secondsLeft(l.polled, now) < 1 {
			delete(h.held, receipt)
			lost++
			continue
		}
		pause = min(pause, l.due.Sub(now))
	}
	if len(h.held) == 0 {
		h.beating = false
		return nil, 0, true
	}
	if pause > 0 {
		return nil, pause, false
	}
	h.flying, h.stored = map[string]bool{}, make(chan struct{})
	for receipt, l := range h.held {
		if len(batch) < maxBatch && l.due.Sub(now) <= h.interval/4 {
			seconds := min(wholeSeconds(h.visibility), secondsLeft(l.polled, now))
			batch = append(batch, entry{receipt: receipt, seconds: seconds})
			h.flying[receipt] = true
		}
	}
	return batch, 0, false
}

func (h *heart) extendBatch(batch []entry) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), min(max(h.interval, time.Second), callTimeout))
	outcomes := inBatches(ctx, batch, h.extend)
	cancel()
	lost := 0
	h.mu.Lock()
	defer h.unlock(&lost)
	for i, o := range outcomes {
		receipt := batch[i].receipt
		l, still := h.held[receipt]
		switch {
		case !still: // let go while the call ran
		case o.err == nil:
			h.counters.extended.Add(1)
			l.due = started.Add(h.interval)
		case o.dead:
			lost++
			delete(h.held, receipt)
		default: // sooner than usual: there is less time left
			l.due = time.Now().Add(h.interval / 3)
		}
	}
	h.flying = nil
	close(h.stored)
}

// unlock lets go of the lock before it tells of losses: a hook may ask for Stats.
func (h *heart) unlock(lost *int) {
	h.mu.Unlock()
	if *lost > 0 {
		h.lost(*lost)
	}
}
