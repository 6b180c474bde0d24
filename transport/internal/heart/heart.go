// Package heart keeps things that were lent to this process: it extends each at a third of its lease until it is let go.
//
//	Hold ─▶ held ──── LetGo ──────────────────▶ no longer extended
//	         │ ▲
//	         ▼ │
//	      extended at each third of the lease, in batches
//	         │
//	         └─ lost, or its limit is over ─▶ no longer held; Lost is told
package heart

import (
	"context"
	"math"
	"sync"
	"time"
)

// A Config shapes a [Heart]. All fields but Extended and Lost are required.
type Config[K comparable] struct {
	// Lease is how long a thing stays ours after it was received or extended. A third of it is the interval of extensions: two may fail.
	Lease time.Duration
	// Batch is the most that one call of Extend takes.
	Batch int
	// CallTimeout bounds one call of Extend; a third of the lease, but a second at least, bounds it too.
	CallTimeout time.Duration
	// Extend extends, and answers for each beat, in their order. It is called by one goroutine.
	Extend func(ctx context.Context, beats []Beat[K]) []Outcome
	// Extended is told how many were extended and are still held.
	Extended func(n int)
	// Lost is told how many are not held any more because they were lost or their limit is over. It may ask for Count.
	Lost func(n int)
}

// A Beat is one thing to extend.
type Beat[K comparable] struct {
	Key K
	// Left is how long it may still be held in all: a second at least.
	Left time.Duration
}

// An Outcome is what became of one extension. The zero Outcome is success.
type Outcome struct {
	Failed bool // tried again after a ninth of the lease: there is less time left
	Lost   bool // it is not ours any more
}

// A Heart keeps what is held from Hold to LetGo. What was received and not begun ages like the rest, so it does not wait until work starts.
// One goroutine beats while something is held, and none otherwise. Times are monotonic: a clock that is set does not move a beat.
type Heart[K comparable] struct {
	config   Config[K]
	interval time.Duration

	mu      sync.Mutex
	held    map[K]*lease
	beating bool          // the goroutine runs
	empty   chan struct{} // tells it that nothing is held any more
	flying  map[K]bool    // in the running call
	stored  chan struct{} // closed when that call is over
}

type lease struct {
	until time.Time // zero: no limit
	due   time.Time // of the next extension
}

// New makes a heart that holds nothing.
func New[K comparable](c Config[K]) *Heart[K] {
	if c.Extended == nil {
		c.Extended = func(int) {}
	}
	if c.Lost == nil {
		c.Lost = func(int) {}
	}
	return &Heart[K]{config: c, interval: c.Lease / 3, held: map[K]*lease{}, empty: make(chan struct{}, 1)}
}

// Count is how many things are held.
func (h *Heart[K]) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}

// Hold extends key from now on, until the time until at most; zero: without a limit.
func (h *Heart[K]) Hold(key K, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[key] = &lease{until: until, due: time.Now().Add(h.interval)}
	if !h.beating {
		h.beating = true
		go h.beat()
	}
}

// Holds reports whether key is held.
func (h *Heart[K]) Holds(key K) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[key] != nil
}

// LetGo stops extending. If an extension of one of the keys is on its way, the channel tells when it is over; otherwise it is nil.
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
		default: // told already
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

// leastLeft is how much of its limit a thing must have left to be extended.
const leastLeft = time.Second

func (l *lease) left(now time.Time) time.Duration {
	if l.until.IsZero() {
		return math.MaxInt64
	}
	return l.until.Sub(now)
}

// next picks a batch to extend, and lets go of what reached its limit. If one is due, others that soon will be go along. With none due it
// answers how long to pause; with none held, to stop.
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
	outcomes := h.config.Extend(ctx, batch)
	cancel()
	extended, lost := 0, 0
	h.mu.Lock()
	for i, o := range outcomes {
		l, still := h.held[batch[i].Key]
		switch {
		case !still: // let go while the call ran
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

// unlock lets go of the lock before it tells of anything: a hook may ask for Count.
func (h *Heart[K]) unlock(extended int, lost *int) {
	h.mu.Unlock()
	if extended > 0 {
		h.config.Extended(extended)
	}
	if *lost > 0 {
		h.config.Lost(*lost)
	}
}
