package pace_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// Sleep returns early when its context ends, and reports which of the two happened.
func TestSleep_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	if !pace.Sleep(t.Context(), time.Millisecond) {
		t.Error("it did not sleep")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if pace.Sleep(ctx, time.Hour) {
		t.Error("it slept for an hour")
	}
}

// Jittered returns at most the given duration, and at least half of it.
func TestJittered_StaysInItsBounds(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if d := pace.Jittered(10); d < 5 || d > 10 {
			t.Fatalf("got %d of 10", d)
		}
	}
}
