package command

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

// patience is how a call waits for another one with its key: without a connection, by asking again and again, or, if the
// other one runs in this process, until it has ended.
type patience struct {
	until time.Time
	step  time.Duration
}

// Between two questions. The first comes soon, because most handlers are quick.
const (
	firstStep = 5 * time.Millisecond
	lastStep  = 250 * time.Millisecond
)

// wait reports whether to ask again. It returns false when the time or the context has ended.
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

// inFlight is what this process is working on. It only spares those who wait some questions; the database decides.
var inFlight flights

type flights struct {
	mu   sync.Mutex
	open map[string]chan struct{}
}

func nameOf(i pawl.Intent) string { return i.Scope + "\x00" + i.Key }

// enter notes that an attempt runs here; leave ends it.
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

// ended returns a channel that is closed when the attempt here has ended, nil if there is none.
func (f *flights) ended(i pawl.Intent) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[nameOf(i)]
}
