package outbox

import (
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

const (
	// downBy is how many different events must find the sink down, each in a call of its own and with none accepted in between,
	// before it counts as down. One event proves nothing: it may be the event that makes the sink look so.
	downBy = 2
	// downAfter is the same for a sink that refuses without saying that it is down.
	downAfter = 10
	// maxExcused bounds the memory of who was excused. Beyond it all is forgotten: each may be excused once more.
	maxExcused = 10_000
)

// A breaker decides what a failure says of: the event, whose attempt is then charged, or the sink, which is then left alone but
// for one event at a time.
//
//	closed ── downBy events found it down alone, or downAfter were refused in a row ──▶ open ── one is accepted ──▶ closed
//	                                                                                     │  ▲
//	                                                                                     └──┘ it fails: a longer pause, up to Probe
//
// An event that finds the sink down is excused, until the sink has accepted others since: then it may be the event that makes the
// sink look so, and it must come to an end. Until it is accepted it is a suspect and is published alone. So an event on which whole
// calls fail costs its neighbours one repetition, and others no pause.
type breaker struct {
	wake    func()
	longest time.Duration

	mu       sync.Mutex
	open     bool
	pause    time.Duration // before the next probe
	next     time.Time     // from when on it may be made
	accepted int64         // events, so far
	refused  map[int64]bool
	down     map[int64]bool // found the sink down alone, since one was accepted
	excused  map[int64]excuse
}

// An excuse is what is remembered of an event that found the sink down.
type excuse struct {
	accepted int64 // how many events were accepted by then
	times    int
}

// A trial is what became of publishing one event.
type trial struct {
	event   int64 // job id
	suspect bool  // to be published alone
	alone   bool  // it was
	err     error
	excused bool          // not to be charged,
	pause   time.Duration // and to come back after this
}

func newBreaker(longest time.Duration) *breaker {
	return &breaker{longest: longest, refused: map[int64]bool{}, down: map[int64]bool{}, excused: map[int64]excuse{}}
}

// mark says which events are suspects.
func (b *breaker) mark(trials []trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range trials {
		_, trials[i].suspect = b.excused[trials[i].event]
	}
}

// admit says how many events may be claimed now.
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

// scheduleProbe sets the time of the next probe.
func (b *breaker) scheduleProbe() {
	b.next = time.Now().Add(b.pause)
	time.AfterFunc(b.pause, b.wake)
	b.pause = min(2*b.pause, b.longest)
}

// judge marks who is excused, counts them, and says why the first was.
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

// uncharged reports whether a trial is not to be charged, and says when it comes back.
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

// weigh reports whether the trials say that the sink is down, and whether it has accepted any.
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
