package solo

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A suspect never shares the process, and ordinary work does not starve it.
func TestGate_SuspectRunsAlone(t *testing.T) {
	t.Parallel()
	g := New()
	var inside, suspects, together, ran atomic.Int32
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			for done := false; !done; {
				if err := g.Enter(t.Context(), 1); err != nil {
					t.Error(err)
					return
				}
				leave, alone := func() { g.Leave(1) }, false
				if i%10 == 0 {
					var err error
					if leave, alone, err = g.Alone(t.Context()); err != nil {
						t.Error(err)
						return
					}
					if !alone {
						continue // another suspect was quicker
					}
					suspects.Add(1)
					ran.Add(1)
				}
				if n := inside.Add(1); suspects.Load() > 0 && n > 1 {
					together.Add(1)
				}
				time.Sleep(100 * time.Microsecond) // the work; not a wait for anything
				if alone {
					suspects.Add(-1)
				}
				inside.Add(-1)
				leave()
				done = true
			}
		})
	}
	all.Wait()
	if together.Load() != 0 || ran.Load() != 20 {
		t.Errorf("%d suspects ran, %d times in company", ran.Load(), together.Load())
	}
}

// One suspect at a time waits at the door; a second is sent away, for it would be in hand while the first runs.
func TestGate_OneSuspectAtTheDoor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		if err := g.Enter(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		first := make(chan func(), 1)
		go func() {
			leave, _, _ := g.Alone(t.Context())
			first <- leave
		}()
		synctest.Wait()
		if _, alone, err := g.Alone(t.Context()); alone || err != nil {
			t.Fatalf("a second suspect: alone %v, %v", alone, err)
		}
		select {
		case <-first:
			t.Fatal("the first is alone, with one inside")
		default:
		}
		g.Leave(1)
		leave := <-first
		leave()
		if err := g.Enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	})
}

// A suspect that gives up waiting does not keep the door closed.
func TestGate_WaiterThatGivesUpReopensTheDoor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		if err := g.Enter(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := g.Alone(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the suspect got in: %v", err)
		}
		if err := g.Enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		g.Leave(2)
	})
}
