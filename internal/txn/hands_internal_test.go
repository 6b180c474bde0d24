package txn

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Many at a time each have a goroutine of their own, whatever became of those before them, and none is left when they are sent away: a bubble
// that ends with one in it is a deadlock.
func TestHands_EachHasItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hands
		h.Stay(true)
		defer h.Stay(false)
		for range 3 {
			var together, all sync.WaitGroup
			together.Add(2 * idleHands)
			for n := range 2 * idleHands {
				all.Go(func() {
					err := safely(&h, func() error {
						together.Done()
						together.Wait() // never, if two shared one
						switch n % 4 {
						case 0:
							runtime.Goexit()
						case 1:
							panic("boom")
						}
						return nil
					})
					if abrupt := errors.Is(err, ErrExited) || Abrupt(err); abrupt != (n%4 < 2) {
						t.Errorf("%d: %v", n, err)
					}
				})
			}
			all.Wait()
		}
	})
}

// One that is at work when the others are sent away goes after it.
func TestHands_GoWithTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hands
		h.Stay(true)
		leave, ran := make(chan struct{}), make(chan struct{})
		h.do(func() { <-leave; close(ran) })
		h.do(func() {})
		synctest.Wait()
		if len(h.idle) != 1 {
			t.Errorf("%d rest, want 1", len(h.idle))
		}
		h.Stay(false)
		close(leave)
		<-ran
		h.do(func() {}) // is run all the same
	})
}

// What ran before leaves its goroutine to what comes next.
func TestHands_AreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hands
		h.Stay(true)
		defer h.Stay(false)
		h.do(func() {})
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 10 {
			h.do(func() {})
			synctest.Wait()
		}
		if after := runtime.NumGoroutine(); after > before || len(h.idle) != 1 {
			t.Errorf("%d goroutines, %d before; %d rest", after, before, len(h.idle))
		}
	})
}
