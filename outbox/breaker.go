package outbox

import (
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

const (
	// downAfter is how many different events a sink must refuse, with none accepted in between, to count as down although no
	// error says so.
	downAfter = 10
	// maxExcused bounds the memory of who was excused. Beyond it all is forgotten: each may be excused once more.
	maxExcused = 10_000
)

// A breaker decides what a failure says of: the event, whose attempt is then charged, or the sink, which is then left alone but
// for one event at a time.
//
//	closed ── down, or downAfter events refused in a row ──▶ open ── an event is accepted ──▶ closed
//	                                                         │  ▲
//	                                                         └──┘ the one event fails: a longer pause, up to Probe
//
// That an event finds the sink down is excused, until the sink has accepted others since: then it may be the event that makes
// the sink look so, and it must not come back for ever, holding up its aggregate and everybody else.
type breaker struct {
	wake    func()
	longest time.Duration

	mu       sync.Mutex
	open     bool
	pause    time.Duration // before the next probe
	next     time.Time     // from when on it may be made
	accepted int64         // events, so far
	refused  map[int64]bool
	excused  map[int64]int64 // event to accepted, as it was then
}

// A trial is what became of publishing one event.
type trial struct {
	event   int64 // job id
	err     error
	excused bool // not to be charged
}

func newBreaker(longest time.Duration) *breaker {
	return &breaker{longest: longest, refused: map[int64]bool{}, excused: map[int64]int64{}}
}

// gate says how many events may be claimed now.
func (b *breaker) gate() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return maxBatch
	case time.Now().Before(b.next):
		return 0
	}
	b.schedule()
	return 1
}

// schedule sets the time of the next probe.
func (b *breaker) schedule() {
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
		b.schedule()
	}
	for i := range trials {
		t := &trials[i]
		if t.err == nil || pawl.IsFinal(t.err) || !pawl.IsSinkDown(t.err) && !b.open {
			continue
		}
		if before, known := b.excused[t.event]; known && before < b.accepted {
			continue
		}
		if len(b.excused) >= maxExcused {
			clear(b.excused)
		}
		b.excused[t.event] = b.accepted
		if t.excused = true; count == 0 {
			why = t.err
		}
		count++
	}
	return count, why
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
			down = true
		case !pawl.IsFinal(t.err):
			b.refused[t.event] = true
		}
	}
	if succeeded {
		clear(b.refused)
	}
	return down || len(b.refused) >= downAfter, succeeded
}
