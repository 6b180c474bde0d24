package command

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

// patience is how a call waits for another one with the same key, without a connection. It claims
// at intervals, or waits for the other call's end if that runs in this process.
type patience struct {
	until time.Time
	step  time.Duration
}

// Intervals between two claims. The first is short, because most handlers are quick.
const (
	firstStep = 5 * time.Millisecond
	lastStep  = 250 * time.Millisecond
)

// wait reports whether to claim again. It returns false if the time is up or the context has ended.
func (p *patience) wait(ctx context.Context, i pawl.Intent) bool {
	left := time.Until(p.until)
	if left <= 0 {
		return false
	}
	p.step = min(max(2*p.step, firstStep), lastStep)
	nap := p.step/2 + rand.N(p.step)
	ended := inFlight.ended(i)
	if ended != nil {
		nap = time.Second
	}
	timer := time.NewTimer(min(nap, left))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-ended:
	case <-timer.C:
	}
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// inFlight holds this process's attempts, only to save queries. The database decides.
var inFlight flights

type flights struct {
	mu   sync.Mutex
	open map[string]chan struct{}
}

func nameOf(i pawl.Intent) string { return i.Scope + "\x00" + i.Key }

// enter records that an attempt runs here; call leave when it has ended.
func (f *flights) enter(i pawl.Intent) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := nameOf(i)
	if f.open[name] != nil { // of another database
		return func() {}
	}
	if f.open == nil {
		f.open = map[string]chan struct{}{}
	}
	ended := make(chan struct{})
	f.open[name] = ended
	return func() {
		f.mu.Lock()
		delete(f.open, name)
		f.mu.Unlock()
		close(ended)
	}
}

// ended returns a channel that is closed when the attempt in this process ends, or nil.
func (f *flights) ended(i pawl.Intent) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[nameOf(i)]
}
