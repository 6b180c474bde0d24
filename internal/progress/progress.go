// Package progress tells how long ago the loops of a process went round. Package service puts a [Part] into the context of each Run; the
// loops behind it mark their turns there. Without one, marks go nowhere and cost nothing.
package progress

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
)

// A Part is what a consumer, worker, relay or keeper tells of itself. All methods may be called at once, and on a nil Part.
type Part struct {
	mu    sync.Mutex
	loops []*Loop
	away  map[any]bool // workers that have no row in the database now
}

// A Loop is one loop of a part. All methods may be called on a nil Loop.
type Loop struct {
	// Name says which, for people: "queue ledger".
	Name string
	// Limit is how long a turn may take while handlers keep to their timeouts.
	Limit time.Duration
	// Due asks whether there is work for the loop. nil: there may always be.
	Due func(ctx context.Context, db pawl.DB) (bool, error)

	turned atomic.Int64 // since the start of the process, on the monotonic clock
}

type partKey struct{}

// With returns a context whose Run tells p of its progress.
func With(ctx context.Context, p *Part) context.Context { return context.WithValue(ctx, partKey{}, p) }

// From returns the part of a context, or nil.
func From(ctx context.Context) *Part {
	p, _ := ctx.Value(partKey{}).(*Part)
	return p
}

var start = time.Now()

// Loop returns the loop of that name, with a turn now: the old one if the part runs again.
func (p *Part) Loop(name string, limit time.Duration, due func(context.Context, pawl.DB) (bool, error)) *Loop {
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
func (p *Part) Loops() []*Loop {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.loops)
}

// Register says whether a worker of the part is registered in the database now.
func (p *Part) Register(worker any, is bool) {
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

// Registered reports whether all workers of the part are; true if it has none.
func (p *Part) Registered() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.away) == 0
}

// Tick marks that the loop has gone round, or that work of it has ended.
func (l *Loop) Tick() {
	if l != nil {
		l.turned.Store(int64(time.Since(start)))
	}
}

// Still returns how long ago the last turn was.
func (l *Loop) Still() time.Duration { return time.Since(start) - time.Duration(l.turned.Load()) }
