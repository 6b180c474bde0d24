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
	var inside, suspects, together atomic.Int32
	var wg sync.WaitGroup
	for i := range 200 {
		alone := i%10 == 0
		wg.Go(func() {
			leave, err := g.Enter(t.Context(), alone)
			if err != nil {
				t.Error(err)
				return
			}
			n := inside.Add(1)
			if alone {
				suspects.Add(1)
			}
			if suspects.Load() > 0 && n > 1 {
				together.Add(1)
			}
			time.Sleep(100 * time.Microsecond) // the work; not a wait for anything
			if alone {
				suspects.Add(-1)
			}
			inside.Add(-1)
			leave()
		})
	}
	wg.Wait()
	if together.Load() != 0 {
		t.Errorf("a suspect had company %d times", together.Load())
	}
}

// A suspect that gives up waiting does not keep the door closed.
func TestGate_WaiterThatGivesUpReopensTheDoor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		leave, _ := g.Enter(t.Context(), false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Enter(ctx, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the suspect got in: %v", err)
		}
		second, err := g.Enter(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		second()
		leave()
	})
}
