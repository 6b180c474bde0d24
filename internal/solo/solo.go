// Package solo lets many pieces of work be in hand at once in a process, or one suspect alone.
//
// Work that was in hand when a process died may have killed it. It runs with nothing beside it, so that, if it kills
// again, nobody else's work is blamed (docs/decisions/0005-crashes.md): not what runs, and not what is claimed and waits,
// for whoever sweeps after the death cannot tell them apart. A crash takes the process, so the gate is the process's: there
// is one.
package solo

import (
	"context"
	"sync"
)

// Process is the gate of this process.
var Process = New()

// A Gate has any number of ordinary entrants inside, or exactly one suspect.
type Gate struct {
	mu      sync.Mutex
	inside  int           // ordinary entrants
	suspect bool          // one is at the door or inside: ordinary entrants queue behind it
	changed chan struct{} // made by who waits, closed when the above changes; nil if nobody waits
}

// New returns an open gate.
func New() *Gate { return &Gate{} }

// Enter admits n ordinary entrants at once, when there is no suspect. Enter before you claim, for as many as you may get.
// It fails only with ctx's error.
func (g *Gate) Enter(ctx context.Context, n int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.until(ctx, func() bool { return !g.suspect }); err != nil {
		return err
	}
	g.inside += n
	return nil
}

// Leave ends the stay of n ordinary entrants.
func (g *Gate) Leave(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside -= n
	g.notify()
}

// Alone turns one ordinary entrant into a suspect: it closes the door, leaves, waits until nobody is inside and returns the
// function that opens the door again. It is refused, not alone and without an error, if there is another suspect: two at
// the door would be in each other's company. Whatever the answer, its stay as an ordinary entrant has ended.
func (g *Gate) Alone(ctx context.Context) (leave func(), alone bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	defer g.notify()
	if g.suspect {
		return nil, false, nil
	}
	g.suspect = true
	g.notify()
	if err := g.until(ctx, func() bool { return g.inside == 0 }); err != nil {
		g.suspect = false
		return nil, false, err
	}
	return sync.OnceFunc(g.reopen), true, nil
}

func (g *Gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.suspect = false
	g.notify()
}

// until waits, without the lock, until a condition holds under it.
func (g *Gate) until(ctx context.Context, holds func() bool) error {
	for !holds() {
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		g.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *Gate) notify() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}
