// Package progress records when the loops of a process last made progress. Package service puts a
// [Tracker] into the context of each Run, and the loops call Tick on it. Without a Tracker, ticks
// do nothing and cost nothing.
package progress

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
)

// A Tracker holds the progress of a consumer, worker, relay or keeper. Its methods are safe for
// concurrent use and on a nil Tracker.
type Tracker struct {
	mu    sync.Mutex
	loops []*Loop
	away  map[any]bool // workers without a row in the database now
}

// A Loop is one loop of a part. Its methods do nothing on a nil Loop.
type Loop struct {
	// Name is for people: "queue ledger".
	Name string
	// Limit is how long an iteration may take while handlers keep to their timeouts.
	Limit time.Duration
	// Due reports whether there is work for the loop; nil: there may always be.
	Due func(ctx context.Context, db pawl.DB) (bool, error)

	// time of the last tick since the start of the process, on the monotonic clock
	turned atomic.Int64
}

type trackerKey struct{}

// With returns a context that carries p.
func With(ctx context.Context, p *Tracker) context.Context {
	return context.WithValue(ctx, trackerKey{}, p)
}

// From returns the part of a context, or nil.
func From(ctx context.Context) *Tracker {
	p, _ := ctx.Value(trackerKey{}).(*Tracker)
	return p
}

var start = time.Now()

// Loop returns the loop of that name, and ticks it. If the part runs again, it gets the same loop.
func (p *Tracker) Loop(name string, limit time.Duration, due func(context.Context, pawl.DB) (bool, error)) *Loop {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.loops, func(l *Loop) bool { return l.Name == name })
	if i < 0 {
		i = len(p.loops)
		p.loops = append(p.loops, &Loop{Name: name, Limit: limit, Due: due})
	}
	p.loops[i].Tick()
	return p.loops[i]
}

// Loops returns the loops of the part.
func (p *Tracker) Loops() []*Loop {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.loops)
}

// Register records whether a worker of the part is registered in the database now.
func (p *Tracker) Register(worker any, is bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if is {
		delete(p.away, worker)
		return
	}
	if p.away == nil {
		p.away = map[any]bool{}
	}
	p.away[worker] = true
}

// Registered reports whether all workers of the part are registered; true if there are none.
func (p *Tracker) Registered() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.away) == 0
}

// Tick records an iteration of the loop, or the end of some of its work.
func (l *Loop) Tick() {
	if l != nil {
		l.turned.Store(int64(time.Since(start)))
	}
}

// Still returns the time since the last tick.
func (l *Loop) Still() time.Duration { return time.Since(start) - time.Duration(l.turned.Load()) }
