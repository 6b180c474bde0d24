package patience

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A record records how a test ends.
type record struct {
	testing.TB
	said string
}

func (r *record) Helper() {}

func (r *record) Fatalf(format string, args ...any) {
	r.said = format
	for _, a := range args {
		if text, ok := a.(string); ok {
			r.said += "\n" + text
		}
	}
}

// A wait ends as soon as its condition holds.
func TestUntil_EndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, polls := time.Now(), 0
		Until(t, "the third poll", func() bool { polls++; return polls == 3 })
		if took := time.Since(began); took != pause(0)+pause(1) {
			t.Errorf("took %v", took)
		}
	})
}

// A wait that times out lasts for Limit. Its failure says that it is about time, what it waited
// for, and the load of the machine.
func TestUntil_InVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := &record{TB: t}, time.Now()
		Until(r, "a thing that never comes", func() bool { return false })
		if took := time.Since(began); took != Limit {
			t.Errorf("took %v", took)
		}
		for _, want := range []string{"TIMING: ", "a thing that never comes", "longest stall was 0s", "load is", "goroutine "} {
			if !strings.Contains(r.said, want) {
				t.Errorf("%q is missing in %s", want, r.said)
			}
		}
	})
}

// A poll that stalls costs the wait none of its other polls, and the failure reports it.
func TestUntil_AStallStretchesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		Until(t, "the last poll", func() bool {
			polls++
			if polls == 1 {
				time.Sleep(10 * Limit)
			}
			return polls == int(Limit/longest)
		})
	})
}

func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int)
		go func() { time.Sleep(time.Minute); c <- 7 }()
		if got := Receive(t, "seven", c); got != 7 {
			t.Errorf("got %d", got)
		}
		r := &record{TB: t}
		Receive(r, "an eighth", c)
		if !strings.Contains(r.said, "an eighth") {
			t.Errorf("said %q", r.said)
		}
	})
}

// Poll ends as soon as its condition holds or its context has ended. It reads only the context's
// Err.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, polls := time.Now(), 0
		err := Poll(t.Context(), func() bool { polls++; return polls == 3 })
		if took := time.Since(began); err != nil || took != pause(0)+pause(1) {
			t.Errorf("%v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := Poll(ctx, func() bool { return false }); err != context.DeadlineExceeded {
			t.Errorf("the context has ended: %v", err)
		}
		if err := Poll(ctx, func() bool { return true }); err != context.DeadlineExceeded {
			t.Errorf("the context had ended: %v", err)
		}
	})
}

func TestLimit(t *testing.T) {
	for factor, want := range map[string]time.Duration{"": 3 * time.Minute, "2": 6 * time.Minute, "0.5": 90 * time.Second, "no": 3 * time.Minute, "-1": 3 * time.Minute} {
		if got := limit(factor); got != want {
			t.Errorf("%q: %v, want %v", factor, got, want)
		}
	}
}
