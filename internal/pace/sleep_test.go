package pace_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// A sleep ends early with its context, and says which of the two it was.
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

// A jittered time is never longer than asked, nor shorter than half of it.
func TestJittered_StaysInItsBounds(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if d := pace.Jittered(10); d < 5 || d > 10 {
			t.Fatalf("got %d of 10", d)
		}
	}
}
