// Package solo lets a process run many pieces of work at once, and runs one suspect alone for a
// while.
//
// A suspect is work that was running when a process died, and may have killed it. A process runs
// one suspect at a time, so that two are never blamed for each other. The suspect starts alone, so
// that a poison that kills at once is identified. A crash ends the whole process, so there is one
// isolator for a process.
//
// Other work waits for a bounded time. The isolator is closed to it for at most [AloneWait] while
// the suspect waits to be alone, and then for at most [AloneFor] while it is alone. After that the
// isolator stays open at least as long as it was closed, even if a handler never returns. A suspect
// that could not be alone in time, or takes longer, runs beside other work.
//
// See docs/decisions/0038-suspects.md.
package solo

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// AloneWait bounds how long the isolator is closed while a suspect waits for running work to
	// leave.
	AloneWait = time.Second
	// AloneFor bounds how long the isolator is closed while a suspect is alone.
	AloneFor = 2 * time.Second
)

// Process is the isolator of this process.
var Process = New()

// An Isolator has any number of ordinary entrants inside, and at most one suspect.
type Isolator struct {
	mu      sync.Mutex
	inside  int           // ordinary entrants
	waiting []*entry      // ordinary entrants that wait while the isolator is closed
	closed  time.Time     // when the isolator was closed; zero: it is open
	suspect *Suspect      // the current one
	rests   time.Time     // the earliest time for the next suspect
	empty   chan struct{} // made by a waiting suspect, closed when no ordinary entrant is inside
	// made by a caller that waits for a suspect's turn, closed when it may have come
	freed chan struct{}
}

// An entry is a group of n entrants that wait while the isolator is closed.
type entry struct {
	n        int
	admitted chan struct{}
}

// New returns an open isolator.
func New() *Isolator { return &Isolator{} }

// Enter admits n ordinary entrants. If the isolator is closed, Enter waits until it opens, at most
// AloneWait + AloneFor. The waiting entrants are then admitted even if the isolator closes again at
// once. Call Enter before you claim, with the largest number you may get. The only error is ctx's.
func (g *Isolator) Enter(ctx context.Context, n int) error {
	g.mu.Lock()
	if g.closed.IsZero() {
		g.inside += n
		g.mu.Unlock()
		return nil
	}
	e := &entry{n: n, admitted: make(chan struct{})}
	g.waiting = append(g.waiting, e)
	g.mu.Unlock()
	select {
	case <-e.admitted:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, e)
	if at < 0 {
		return nil // admitted just now
	}
	g.waiting = slices.Delete(g.waiting, at, at+1)
	return ctx.Err()
}

// TryEnter admits n ordinary entrants if the isolator is open.
func (g *Isolator) TryEnter(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed.IsZero() {
		return false
	}
	g.inside += n
	return true
}

// Waiting returns how many ordinary entrants wait while the isolator is closed.
func (g *Isolator) Waiting() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.waiting {
		n += e.n
	}
	return n
}

// Leave removes n ordinary entrants.
func (g *Isolator) Leave(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.depart(n)
}

func (g *Isolator) depart(n int) {
	g.inside -= n
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// Due reports whether a suspect may start now. If not, later is closed when it is worth calling Due
// again.
func (g *Isolator) Due() (now bool, later <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.due() {
		return true, nil
	}
	if g.freed == nil {
		g.freed = make(chan struct{})
		if g.suspect == nil {
			g.freeIn(time.Until(g.rests))
		}
	}
	return false, g.freed
}

func (g *Isolator) due() bool { return g.suspect == nil && !time.Now().Before(g.rests) }

// freeIn closes freed after the rest.
func (g *Isolator) freeIn(rest time.Duration) {
	freed := g.freed
	if freed == nil {
		return
	}
	time.AfterFunc(max(rest, 0), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.freed == freed {
			close(freed)
			g.freed = nil
		}
	})
}

// A Suspect is the one suspect that a process runs.
type Suspect struct {
	isolator *Isolator
	reopen   *time.Timer // opens the isolator even if Open and Leave are never called
}

// Suspect turns one ordinary entrant into the suspect. If there is a suspect, or the isolator was
// closed recently, it returns nil and the entrant stays ordinary.
func (g *Isolator) Suspect() *Suspect {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.due() {
		return nil
	}
	g.suspect = &Suspect{isolator: g}
	g.depart(1)
	return g.suspect
}

// Alone closes the isolator and waits until no ordinary entrant is inside. If that takes longer
// than AloneWait, or ctx ends, Alone opens the isolator and returns false. Otherwise the isolator
// opens after AloneFor at the latest. Call Alone once.
func (s *Suspect) Alone(ctx context.Context) bool {
	g := s.isolator
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = time.Now()
	limit := time.NewTimer(AloneWait)
	defer limit.Stop()
	if g.inside > 0 {
		g.empty = make(chan struct{})
		empty := g.empty
		g.mu.Unlock()
		select {
		case <-empty:
		case <-limit.C:
		case <-ctx.Done():
		}
		g.mu.Lock()
		g.empty = nil
	}
	if g.inside > 0 {
		g.open(s)
		return false
	}
	s.reopen = time.AfterFunc(AloneFor, s.Open)
	return true
}

// Open admits ordinary entrants beside the suspect. A second call does nothing.
func (s *Suspect) Open() {
	s.isolator.mu.Lock()
	defer s.isolator.mu.Unlock()
	s.isolator.open(s)
}

func (g *Isolator) open(s *Suspect) {
	if g.suspect != s || g.closed.IsZero() {
		return
	}
	if s.reopen != nil {
		s.reopen.Stop()
	}
	now := time.Now()
	g.rests = now.Add(now.Sub(g.closed))
	g.closed = time.Time{}
	for _, e := range g.waiting {
		g.inside += e.n
		close(e.admitted)
	}
	g.waiting = nil
}

// Leave opens the isolator and removes the suspect. Another suspect may start after the isolator
// has been open as long as it was closed. A second call does nothing.
func (s *Suspect) Leave() {
	g := s.isolator
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.suspect != s {
		return
	}
	g.open(s)
	g.suspect = nil
	g.freeIn(time.Until(g.rests))
}

// Abandon returns a timer for a handler that overruns its limit by so much that the process stops
// waiting for it. When the timer fires, it calls leave. Stop the timer when the handler returns.
func Abandon(limit time.Duration, leave func()) *time.Timer { return time.AfterFunc(limit, leave) }
