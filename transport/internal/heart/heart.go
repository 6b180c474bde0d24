// Package heart keeps things that a broker has lent to this process. It extends each at a third of
// its lease until it is released.
//
//	Hold ─▶ held ──── LetGo ──────────────────▶ no longer extended
//	         │ ▲
//	         ▼ │
//	      extended at each third of the lease, in batches
//	         │
//	         └─ lost, or its limit is reached ─▶ no longer held; Lost is called
package heart

import (
	"context"
	"math"
	"sync"
	"time"
)

// A Config configures a [Heart]. All fields except Extended and Lost are required.
type Config[K comparable] struct {
	// Lease is how long a thing is ours after it was received or extended. It is extended every
	// third of that, so two extensions may fail.
	Lease time.Duration
	// Batch is the maximum number of beats in one call of Extend.
	Batch int
	// CallTimeout bounds one call of Extend. A call is also bounded by a third of the lease, or a
	// second if that is longer.
	CallTimeout time.Duration
	// Extend extends the beats and returns their results in the same order. One goroutine calls
	// it.
	Extend func(ctx context.Context, beats []Beat[K]) []Extension
	// Extended is called with the number of things that were extended and are still held.
	Extended func(n int)
	// Lost is called with the number of things that were lost or reached their limit. It may call
	// Count.
	Lost func(n int)
}

// A Beat is one thing to extend.
type Beat[K comparable] struct {
	Key K
	// Left is how long it may still be held in total, at least a second.
	Left time.Duration
}

// An Extension is the result of one extension. The zero Extension is success.
type Extension struct {
	Failed bool // retried after a ninth of the lease, because less time is left
	Lost   bool // it is no longer ours
}

// A Heart extends things from Hold to LetGo. Call Hold when a thing is received, even if work on it
// has not begun, because its lease is running. One goroutine runs while things are held. Times are
// monotonic: setting the clock does not move an extension.
type Heart[K comparable] struct {
	config   Config[K]
	interval time.Duration

	mu      sync.Mutex
	held    map[K]*lease
	beating bool          // the goroutine runs
	empty   chan struct{} // signals that nothing is held any more
	flying  map[K]bool    // keys in the running call
	stored  chan struct{} // closed when that call ends
}

type lease struct {
	until time.Time // zero: no limit
	due   time.Time // time of the next extension
}

// New returns a heart that holds nothing.
func New[K comparable](c Config[K]) *Heart[K] {
	if c.Extended == nil {
		c.Extended = func(int) {}
	}
	if c.Lost == nil {
		c.Lost = func(int) {}
	}
	return &Heart[K]{config: c, interval: c.Lease / 3, held: map[K]*lease{}, empty: make(chan struct{}, 1)}
}

// Count returns how many things are held.
func (h *Heart[K]) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}

// Hold extends key from now on, but not beyond until; zero means no limit.
func (h *Heart[K]) Hold(key K, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[key] = &lease{until: until, due: time.Now().Add(h.interval)}
	if !h.beating {
		h.beating = true
		go h.beat()
	}
}

// LetGo stops extending keys. If an extension of one of them is running, the channel is closed when
// it ends; otherwise it is nil.
func (h *Heart[K]) LetGo(keys []K) (stored <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		delete(h.held, key)
		if h.flying[key] {
			stored = h.stored
		}
	}
	if len(h.held) == 0 {
		select {
		case h.empty <- struct{}{}:
		default: // signalled already
		}
	}
	return stored
}

func (h *Heart[K]) beat() {
	for {
		batch, pause, stop := h.next(time.Now())
		switch {
		case stop:
			return
		case len(batch) > 0:
			h.extend(batch)
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

// leastLeft is how much time must be left before its limit for a thing to be extended.
const leastLeft = time.Second

func (l *lease) left(now time.Time) time.Duration {
	if l.until.IsZero() {
		return math.MaxInt64
	}
	return l.until.Sub(now)
}

// next returns a batch to extend, and drops things that reached their limit. If one is due, others
// that are due soon are included. If none is due, it returns how long to pause. If none is held, it
// returns stop.
func (h *Heart[K]) next(now time.Time) (batch []Beat[K], pause time.Duration, stop bool) {
	lost := 0
	h.mu.Lock()
	defer h.unlock(0, &lost)
	pause = h.interval
	for key, l := range h.held {
		if l.left(now) < leastLeft {
			delete(h.held, key)
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
	h.flying, h.stored = map[K]bool{}, make(chan struct{})
	for key, l := range h.held {
		if len(batch) < h.config.Batch && l.due.Sub(now) <= h.interval/4 {
			batch = append(batch, Beat[K]{Key: key, Left: l.left(now)})
			h.flying[key] = true
		}
	}
	return batch, 0, false
}

func (h *Heart[K]) extend(batch []Beat[K]) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), min(max(h.interval, time.Second), h.config.CallTimeout))
	extensions := h.config.Extend(ctx, batch)
	cancel()
	extended, lost := 0, 0
	h.mu.Lock()
	for i, o := range extensions {
		l, still := h.held[batch[i].Key]
		switch {
		case !still: // released while the call ran
		case o.Lost:
			lost++
			delete(h.held, batch[i].Key)
		case o.Failed:
			l.due = time.Now().Add(h.interval / 3)
		default:
			extended++
			l.due = started.Add(h.interval)
		}
	}
	h.flying = nil
	close(h.stored)
	h.unlock(extended, &lost)
}

// unlock releases the mutex before it calls a hook, which may call Count.
func (h *Heart[K]) unlock(extended int, lost *int) {
	h.mu.Unlock()
	if extended > 0 {
		h.config.Extended(extended)
	}
	if *lost > 0 {
		h.config.Lost(*lost)
	}
}
