package verdict

import (
	"context"
	"sync"
	"time"
)

// Bound is how many attempts in a row may be lost with their connection, if the server answered
// when each began. The last one is charged, because its statement may be what takes the server
// down.
const Bound = 3

// maxLosses bounds the number of keys. Beyond it, all counts start again.
const maxLosses = 10_000

// Losses counts, for each job or message, the attempts in a row that were lost with their
// connection. The zero Losses is empty.
type Losses[K comparable] struct {
	mu   sync.Mutex
	lost map[K]int
}

// Lost adds one loss and returns how many there are in a row.
func (l *Losses[K]) Lost(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil || len(l.lost) >= maxLosses {
		l.lost = map[K]int{}
	}
	l.lost[key]++
	return l.lost[key]
}

// Count returns the number of losses in a row.
func (l *Losses[K]) Count(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[key]
}

// Charged records that the losses were charged as one attempt. The next loss is charged again.
func (l *Losses[K]) Charged(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost[key] >= Bound {
		l.lost[key] = Bound - 1
	}
}

// Over removes the losses of key after an attempt that was not lost.
func (l *Losses[K]) Over(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lost, key)
}

// Last reports whether the next loss would be charged.
func (l *Losses[K]) Last(key K) bool { return l.Count(key) >= Bound-1 }

// held is full while an attempt of this process holds Exclusive.
var held = make(chan struct{}, 1)

// exclusiveFor bounds how long an attempt holds Exclusive. A handler may take hours, but a
// statement that takes the server down usually does so earlier.
const exclusiveFor = time.Minute

// Exclusive is a lock that one attempt of this process holds at a time: a suspect, or an attempt
// whose loss would be charged. A statement that takes the server down also ends the attempts beside
// it. Without Exclusive, the same attempts would run together after each restart, and all would be
// charged. It is released after a minute, even if the attempt still runs. The zero Exclusive is not
// held; acquire it once.
type Exclusive struct {
	mu    sync.Mutex
	limit *time.Timer // nil: not held
	lost  bool
}

// crashSettles is how long other attempts wait after a loss. Other sessions may live a moment
// longer, and attempts that begin in them would be lost to the same crash.
const crashSettles = time.Second

// Lost records that the attempt was lost with its connection. The next attempt acquires Exclusive a
// second after Release.
func (e *Exclusive) Lost() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = true
}

// ExclusiveKey is the context key of an attempt's Exclusive.
type ExclusiveKey struct{}

// Context returns ctx with e, for the calls of the attempt.
func (e *Exclusive) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, ExclusiveKey{}, e)
}

// HeldIn reports whether the attempt of this context holds Exclusive. Its calls then do not wait
// for it.
func HeldIn(ctx context.Context) bool {
	e, _ := ctx.Value(ExclusiveKey{}).(*Exclusive)
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.limit != nil
}

// Acquire waits until no other attempt holds it. The only error is ctx's.
func (e *Exclusive) Acquire(ctx context.Context) error {
	select {
	case held <- struct{}{}:
		e.acquired()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryAcquire is Acquire without waiting. It reports whether e is held.
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

// Release lets the next attempt acquire it. It does nothing if e is not held.
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
