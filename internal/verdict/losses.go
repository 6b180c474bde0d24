package verdict

import (
	"context"
	"sync"
	"time"
)

// Bound is how many attempts in a row may be lost with their connection, although the server
// answered when each of them began. The last of them is charged: its statement may be what takes the
// server down.
const Bound = 3

// maxLosses bounds the memory of losses. Beyond it all are forgotten, and counted anew.
const maxLosses = 10_000

// Losses counts, for each job or message, the attempts in a row that were lost with their
// connection. The zero Losses is empty.
type Losses[K comparable] struct {
	mu   sync.Mutex
	lost map[K]int
}

// Lost counts one more loss, and returns how many there are in a row.
func (l *Losses[K]) Lost(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil || len(l.lost) >= maxLosses {
		l.lost = map[K]int{}
	}
	l.lost[key]++
	return l.lost[key]
}

// Count is how many losses in a row there are.
func (l *Losses[K]) Count(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[key]
}

// Charged notes that the losses were charged as one attempt. The next loss is charged again.
func (l *Losses[K]) Charged(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost[key] >= Bound {
		l.lost[key] = Bound - 1
	}
}

// Over forgets the losses: an attempt has come to an end.
func (l *Losses[K]) Over(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lost, key)
}

// Last reports whether the next loss would be charged.
func (l *Losses[K]) Last(key K) bool { return l.Count(key) >= Bound-1 }

// held is full while an attempt of this process holds Exclusive.
var held = make(chan struct{}, 1)

// exclusiveFor bounds how long an attempt holds Exclusive. A handler may take hours, and what takes the
// server down does so sooner as a rule.
const exclusiveFor = time.Minute

// Exclusive is held by one attempt of this process at a time, of suspects and of those that would be
// charged for a loss. A statement that takes the server down ends the attempts beside it, too. Without
// Exclusive, they would meet again after each restart, and all would be charged. It is released after
// a minute, although the attempt goes on. The zero Exclusive is not held; acquire it once.
type Exclusive struct {
	mu    sync.Mutex
	limit *time.Timer // nil: not held
	lost  bool
}

// crashSettles is how long others wait after a loss. The sessions beside it may live a moment longer,
// and what begins in them would be lost to the same crash.
const crashSettles = time.Second

// Lost notes that the attempt was lost with its connection: the next is let in a second after Release.
func (e *Exclusive) Lost() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = true
}

// ExclusiveKey is the key of the Exclusive of an attempt in its context.
type ExclusiveKey struct{}

// Context is ctx for what the attempt calls.
func (e *Exclusive) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, ExclusiveKey{}, e)
}

// HeldIn reports whether the attempt of this context holds Exclusive. What it calls does not wait for
// it.
func HeldIn(ctx context.Context) bool {
	e, _ := ctx.Value(ExclusiveKey{}).(*Exclusive)
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.limit != nil
}

// Acquire waits until no other attempt holds it. It fails only with ctx's error.
func (e *Exclusive) Acquire(ctx context.Context) error {
	select {
	case held <- struct{}{}:
		e.acquired()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryAcquire is Acquire without a wait. It reports whether e is held.
func (e *Exclusive) TryAcquire() bool {
	select {
	case held <- struct{}{}:
		e.acquired()
		return true
	default:
		return false
	}
}

func (e *Exclusive) acquired() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit = time.AfterFunc(exclusiveFor, e.Release)
}

// Release lets the next attempt in. It does nothing if e is not held.
func (e *Exclusive) Release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != nil {
		e.limit.Stop()
		e.limit = nil
		if e.lost {
			time.AfterFunc(crashSettles, func() { <-held })
			return
		}
		<-held
	}
}
