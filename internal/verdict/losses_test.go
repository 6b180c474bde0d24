package verdict

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// One attempt holds Exclusive at a time, until Release or for a minute. So a handler that takes
// hours does not hold up others.
func TestExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held = make(chan struct{}, 1) // of this bubble
		var first, second, third Exclusive
		if !first.TryAcquire() || second.TryAcquire() {
			t.Fatal("two hold it at once, or none")
		}
		within := first.Context(t.Context())
		if !HeldIn(within) || HeldIn(t.Context()) {
			t.Error("the context of the attempt does not say that it holds it, or another does")
		}
		first.Release()
		first.Release()
		if HeldIn(within) {
			t.Error("the context says that it is held after it was released")
		}
		if !second.TryAcquire() || third.TryAcquire() {
			t.Fatal("two hold it at once, or none, after it was released twice")
		}
		began := time.Now()
		if err := third.Acquire(t.Context()); err != nil || time.Since(began) != exclusiveFor {
			t.Errorf("the third had it after %v, %v; the second never released it", time.Since(began), err)
		}
		second.Release() // too late: the third holds it
		var fourth Exclusive
		short, cancel := context.WithTimeout(t.Context(), exclusiveFor/2)
		defer cancel()
		if err := fourth.Acquire(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the fourth: %v, though the third holds it", err)
		}
		fourth.Release()
		third.Release()
		var lost Exclusive
		if !lost.TryAcquire() {
			t.Error("no attempt holds it, but it cannot be acquired")
		}
		lost.Lost()
		began = time.Now()
		lost.Release()
		var after Exclusive
		if err := after.Acquire(t.Context()); err != nil || time.Since(began) != crashSettles {
			t.Errorf("after a loss the next had it in %v, %v, want %v", time.Since(began), err, crashSettles)
		}
		after.Release()
		time.Sleep(2 * exclusiveFor) // no timer is left that would release another attempt's
		if !fourth.TryAcquire() {
			t.Error("no attempt holds it, but it cannot be acquired")
		}
		fourth.Release()
	})
	held = make(chan struct{}, 1)
}
