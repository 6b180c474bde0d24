package verdict

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// One attempt holds Exclusive at a time. It loses it by Release, or by a minute: a handler that takes
// hours does not hold up the others for as long.
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
		second.Release() // late, when it is the third's
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
			t.Error("nobody holds it, and it cannot be had")
		}
		lost.Lost()
		began = time.Now()
		lost.Release()
		var after Exclusive
		if err := after.Acquire(t.Context()); err != nil || time.Since(began) != crashSettles {
			t.Errorf("after a loss the next had it in %v, %v, want %v", time.Since(began), err, crashSettles)
		}
		after.Release()
		time.Sleep(2 * exclusiveFor) // no limit is left that would release another's
		if !fourth.TryAcquire() {
			t.Error("nobody holds it, and it cannot be had")
		}
		fourth.Release()
	})
	held = make(chan struct{}, 1)
}
