package solo

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// enter admits n, or fails the test.
func enter(t *testing.T, g *Isolator, n int) {
	t.Helper()
	if err := g.Enter(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// suspect enters and becomes the suspect.
func suspect(t *testing.T, g *Isolator) *Suspect {
	t.Helper()
	enter(t, g, 1)
	s := g.Suspect()
	if s == nil {
		t.Fatal("there is no suspect, and none can start")
	}
	return s
}

// waited returns how long fn took, on the clock of the bubble.
func waited(fn func()) time.Duration {
	start := time.Now()
	fn()
	return time.Since(start)
}

// A suspect that becomes alone shares the process with no other work, and ordinary work does not
// starve it.
func TestIsolator_SuspectRunsAlone(t *testing.T) {
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
				leave := func() { g.Leave(1) }
				alone := false
				if i%10 == 0 {
					s := g.Suspect()
					if s == nil {
						g.Leave(1)
						_, later := g.Due()
						if later != nil {
							<-later
						}
						continue
					}
					leave, alone = s.Leave, s.Alone(t.Context())
					ran.Add(1)
				}
				if alone {
					suspects.Add(1)
				}
				if n := inside.Add(1); suspects.Load() > 0 && n > 1 {
					together.Add(1)
				}
				patience.Elapse(100 * time.Microsecond)
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

// A process runs one suspect. A second is refused until the first has left.
func TestIsolator_OneSuspectAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		first := suspect(t, g)
		enter(t, g, 1)
		if g.Suspect() != nil {
			t.Fatal("two suspects run at once")
		}
		due, later := g.Due()
		if due {
			t.Fatal("a suspect is due while another runs")
		}
		go func() {
			time.Sleep(time.Minute)
			first.Leave()
		}()
		if took := waited(func() { <-later }); took != time.Minute {
			t.Errorf("later was closed after %v", took)
		}
		if g.Suspect() == nil {
			t.Error("the first has left, and no other can start")
		}
	})
}

// If an entrant never leaves, the isolator is closed for AloneWait at most, and the suspect runs
// beside it.
func TestIsolator_OtherWorkWaitsAtMostAloneWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		enter(t, g, 1) // and stays
		s := suspect(t, g)
		alone := make(chan bool)
		go func() { alone <- s.Alone(t.Context()) }()
		synctest.Wait()
		if took := waited(func() { enter(t, g, 1) }); took != AloneWait {
			t.Errorf("healthy work waited for %v", took)
		}
		if <-alone {
			t.Error("alone, with one inside")
		}
	})
}

// A suspect that never leaves keeps the isolator closed for AloneFor at most, even if its caller
// does nothing.
func TestIsolator_OpensAlthoughTheSuspectStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		if s := suspect(t, g); !s.Alone(t.Context()) {
			t.Fatal("not alone, although the isolator is empty")
		}
		if took := waited(func() { enter(t, g, 1) }); took != AloneFor {
			t.Errorf("healthy work waited for %v", took)
		}
	})
}

// With any number of waiting suspects, the isolator is open as long as it was closed, and waiting
// entrants are admitted.
func TestIsolator_StaysOpenAsLongAsItWasClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		s := suspect(t, g)
		s.Alone(t.Context())
		entered := make(chan struct{})
		go func() {
			enter(t, g, 1)
			close(entered)
		}()
		time.Sleep(time.Second)
		s.Leave()
		<-entered
		if due, _ := g.Due(); due {
			t.Error("the next suspect may close the isolator at once")
		}
		_, later := g.Due()
		if took := waited(func() { <-later }); took != time.Second {
			t.Errorf("the isolator was closed for 1s and stays open for %v", took)
		}
		g.Leave(1)
	})
}

// An entrant that waits is admitted when the isolator opens, before the next suspect can close it
// again.
func TestIsolator_AdmitsAllWhoWaitWhenItOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		s := suspect(t, g)
		s.Alone(t.Context())
		var longest atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				took := waited(func() { enter(t, g, 1) })
				longest.Store(max(longest.Load(), int64(took)))
				g.Leave(1)
			})
		}
		synctest.Wait()
		s.Leave()
		all.Wait()
		if longest.Load() != 0 {
			t.Errorf("one waited for %v after the isolator had opened", time.Duration(longest.Load()))
		}
	})
}

// An entrant that stops waiting is not counted as inside, and a suspect that stops waiting opens
// the isolator.
func TestIsolator_CancelledWaitersDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New()
		enter(t, g, 1)
		s := suspect(t, g)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		gone := make(chan error)
		go func() {
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			time.Sleep(time.Millisecond)
			gone <- g.Enter(short, 1)
		}()
		go func() { s.Alone(ctx); s.Leave() }()
		if err := <-gone; err == nil {
			t.Error("entered a closed isolator")
		}
		if took := waited(func() { enter(t, g, 1) }); took > 60*time.Millisecond {
			t.Errorf("the isolator stayed closed for another %v", took)
		}
		g.Leave(2)
		time.Sleep(time.Minute)
		if !suspect(t, g).Alone(t.Context()) {
			t.Error("not alone, though all have left")
		}
	})
}
