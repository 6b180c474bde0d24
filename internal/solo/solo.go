// Package solo lets many pieces of work be in hand at once in a process, and keeps one suspect apart from them for a while.
//
// Work that was in hand when a process died may have killed it. It is a suspect. A process has one suspect in hand at a time, so
// that two are never blamed for each other, and the suspect begins with nothing beside it, so that a poison which kills at once is
// known for what it is. A crash takes the process, so the gate is the process's: there is one.
//
// Other work pays for that with a bounded wait. The door is closed to it for at most [AloneWait] while the suspect waits to be
// alone, and then for at most [AloneFor] while it is. Whatever any handler does, the door is open after that, for at least as long
// as it was closed. A suspect that could not be alone in time, or takes longer, runs in company.
//
// The argument for it: docs/decisions/0038-suspects.md.
package solo

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// AloneWait is the longest that the door is closed while a suspect waits for those inside to leave.
	AloneWait = time.Second
	// AloneFor is the longest that the door is closed while a suspect is alone.
	AloneFor = 2 * time.Second
)

// Process is the gate of this process.
var Process = New()

// A Gate has any number of ordinary entrants inside, and at most one suspect.
type Gate struct {
	mu      sync.Mutex
	inside  int           // ordinary entrants
	waiting []*entry      // ordinary entrants at the closed door
	closed  time.Time     // since when the door is closed; zero: it is open
	suspect *Suspect      // the one in hand
	rests   time.Time     // no suspect before
	empty   chan struct{} // made by the suspect that waits, closed when nobody is inside
	freed   chan struct{} // made by who waits for a suspect's turn, closed when it may have come
}

// An entry is n entrants at the closed door.
type entry struct {
	n        int
	admitted chan struct{}
}

// New returns an open gate.
func New() *Gate { return &Gate{} }

// Enter admits n ordinary entrants at once. If the door is closed it waits until it opens, which is AloneWait + AloneFor at most;
// it is admitted then even if the door closes again at once. Enter before you claim, for as many as you may get. It fails only with
// ctx's error.
func (g *Gate) Enter(ctx context.Context, n int) error {
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

// TryEnter admits n ordinary entrants if the door is open.
func (g *Gate) TryEnter(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed.IsZero() {
		return false
	}
	g.inside += n
	return true
}

// Waiting returns how many ordinary entrants stand at the closed door.
func (g *Gate) Waiting() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.waiting {
		n += e.n
	}
	return n
}

// Leave ends the stay of n ordinary entrants.
func (g *Gate) Leave(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.depart(n)
}

func (g *Gate) depart(n int) {
	g.inside -= n
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// Due reports whether a suspect may be taken on now. If not, the channel is closed when it is worth asking again.
func (g *Gate) Due() (now bool, later <-chan struct{}) {
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

func (g *Gate) due() bool { return g.suspect == nil && !time.Now().Before(g.rests) }

// freeIn tells those who wait for a suspect's turn, after the rest.
func (g *Gate) freeIn(rest time.Duration) {
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

// A Suspect is the one suspect that a process has in hand.
type Suspect struct {
	gate   *Gate
	reopen *time.Timer // opens the door, whatever happens to who should
}

// Suspect turns one ordinary entrant into the suspect. It returns nil, and the entrant stays what it was, if a suspect is in hand,
// or if the door was closed not long ago.
func (g *Gate) Suspect() *Suspect {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.due() {
		return nil
	}
	g.suspect = &Suspect{gate: g}
	g.depart(1)
	return g.suspect
}

// Alone closes the door and waits until nobody is inside. If that takes longer than AloneWait, or ctx ends, the door is opened again
// and the answer is false. Else it opens after AloneFor at the latest. Call it once.
func (s *Suspect) Alone(ctx context.Context) bool {
	g := s.gate
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

// Open lets ordinary entrants in beside the suspect. It does nothing the second time.
func (s *Suspect) Open() {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	s.gate.open(s)
}

func (g *Gate) open(s *Suspect) {
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

// Leave opens the door and ends the suspect's stay: another may be taken on when the door has been open for as long as it was
// closed. It does nothing the second time.
func (s *Suspect) Leave() {
	g := s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.suspect != s {
		return
	}
	g.open(s)
	g.suspect = nil
	g.freeIn(time.Until(g.rests))
}

// Abandon returns a timer that leaves a handler behind: when it fires, the handler has overrun its limit by so much that it will not be
// waited for any more. Its stay ends, with whatever else there is to do about it. Stop the timer when the handler returns.
func Abandon(limit time.Duration, leave func()) *time.Timer { return time.AfterFunc(limit, leave) }
