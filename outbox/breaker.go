package outbox

import (
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

const (
	// downBy is how many different events must find the sink down, each in its own call and with no
	// success in between. One event is not enough: it may be the cause itself.
	downBy = 2
	// downAfter is how many different events in a row must fail with other errors.
	downAfter = 10
	// maxExcused bounds the remembered excuses. At the bound all are forgotten.
	maxExcused = 10_000
)

// A breaker decides whether a failure is the event's or the sink's. The event's failure is charged
// as an attempt. While the sink is down, the relay claims only one event at a time.
//
//	closed ──▶ open      downBy events found it down alone, or downAfter were refused in a row
//	open ──▶ open        the probe failed: a longer pause, up to Config.Probe
//	open ──▶ closed      the sink accepted an event
//
// The first failure of an event because the sink is down is not charged. If other events succeed
// afterwards, later failures are charged: the event itself may be the cause, and its attempts must
// end. Until it succeeds the event is published separately, in its own call. If an event makes
// whole calls fail, its neighbours are published once more, and other events do not wait.
type breaker struct {
	wake    func()
	longest time.Duration

	mu       sync.Mutex
	open     bool
	pause    time.Duration // before the next probe
	next     time.Time     // earliest time of the next probe
	accepted int64         // events accepted so far
	refused  map[int64]bool
	down     map[int64]bool // events that found the sink down alone since the last success
	excused  map[int64]excuse
}

// An excuse records that an event's failure was not charged.
type excuse struct {
	accepted int64 // breaker.accepted at that time
	times    int
}

// A trial is one attempt to publish an event, and its result.
type trial struct {
	event    int64 // job id
	separate bool  // must be published in its own call
	alone    bool  // was published in its own call
	err      error
	excused  bool          // the attempt is not charged
	pause    time.Duration // delay before the next attempt, if excused
}

func newBreaker(longest time.Duration) *breaker {
	return &breaker{longest: longest, refused: map[int64]bool{}, down: map[int64]bool{}, excused: map[int64]excuse{}}
}

// mark sets separate in the trials of excused events.
func (b *breaker) mark(trials []trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range trials {
		_, trials[i].separate = b.excused[trials[i].event]
	}
}

// admit returns how many events may be claimed now.
func (b *breaker) admit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return maxPublish
	case time.Now().Before(b.next):
		return 0
	}
	b.scheduleProbe()
	return 1
}

// scheduleProbe sets the time of the next probe and doubles the pause.
func (b *breaker) scheduleProbe() {
	b.next = time.Now().Add(b.pause)
	time.AfterFunc(b.pause, b.wake)
	b.pause = min(2*b.pause, b.longest)
}

// judge marks the excused trials. It returns their number and the first one's error.
func (b *breaker) judge(trials []trial) (count int, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	down, succeeded := b.weigh(trials)
	switch {
	case succeeded && b.open:
		b.open = false
		b.wake()
	case down && !succeeded && !b.open:
		b.open, b.pause = true, min(firstProbe, b.longest)
		b.scheduleProbe()
	}
	for i := range trials {
		t := &trials[i]
		if !b.uncharged(t) {
			continue
		}
		if t.excused = true; count == 0 || why == errUntried {
			why = t.err
		}
		count++
	}
	return count, why
}

// uncharged reports whether a trial is not charged, and sets its pause.
func (b *breaker) uncharged(t *trial) bool {
	t.pause = min(firstProbe, b.longest)
	switch {
	case t.err == nil, pawl.IsFinal(t.err):
		return false
	case t.err == errUntried:
		return true
	case !pawl.IsSinkDown(t.err) && !b.open:
		return false
	}
	before, known := b.excused[t.event]
	if known && before.accepted < b.accepted {
		return false
	}
	if len(b.excused) >= maxExcused {
		clear(b.excused)
	}
	b.excused[t.event] = excuse{b.accepted, before.times + 1}
	for range min(before.times, 30) {
		t.pause = min(2*t.pause, b.longest)
	}
	return true
}

// weigh reports whether the sink counts as down after these trials, and whether any succeeded.
func (b *breaker) weigh(trials []trial) (down, succeeded bool) {
	for _, t := range trials {
		switch {
		case t.err == nil:
			succeeded = true
			b.accepted++
			delete(b.excused, t.event)
		case pawl.IsSinkDown(t.err):
			if t.alone {
				b.down[t.event] = true
			}
		case !pawl.IsFinal(t.err) && t.err != errUntried:
			b.refused[t.event] = true
		}
	}
	if succeeded {
		clear(b.refused)
		clear(b.down)
	}
	return len(b.down) >= downBy || len(b.refused) >= downAfter, succeeded
}
