// Package solo lets many handlers run at once in a process, or one suspect alone.
//
// Work that was running when a process died may have killed it. It runs with nothing beside it, so that, if it kills
// again, nobody else's work is blamed (docs/decisions/0005-crashes.md). A crash takes the process, so the gate is the
// process's: there is one.
package solo

import (
	"context"
	"sync"
)

// Process is the gate of this process.
var Process = New()

// A Gate admits any number of ordinary entrants, or exactly one alone.
type Gate struct {
	mu      sync.Mutex
	running int           // inside
	alone   bool          // the one inside runs alone
	waiting int           // suspects at the door; ordinary entrants queue behind them
	changed chan struct{} // closed and replaced whenever the above changes
}

// New returns an open gate.
func New() *Gate { return &Gate{changed: make(chan struct{})} }

// Enter waits for admission and returns the function that leaves. It fails only with ctx's error.
func (g *Gate) Enter(ctx context.Context, alone bool) (leave func(), err error) {
	g.mu.Lock()
	if alone {
		g.waiting++
	}
	for !g.admits(alone) {
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			g.mu.Lock()
			if alone {
				g.waiting--
				g.notify()
			}
			g.mu.Unlock()
			return nil, ctx.Err()
		}
		g.mu.Lock()
	}
	g.running++
	if alone {
		g.waiting--
		g.alone = true
	}
	g.mu.Unlock()
	return g.leave, nil
}

func (g *Gate) admits(alone bool) bool {
	if alone {
		return g.running == 0
	}
	return !g.alone && g.waiting == 0
}

func (g *Gate) leave() {
	g.mu.Lock()
	g.running--
	g.alone = false
	g.notify()
	g.mu.Unlock()
}

func (g *Gate) notify() {
	close(g.changed)
	g.changed = make(chan struct{})
}
