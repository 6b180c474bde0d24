package webhook

import (
	"context"
	"testing"
	"time"
)

// An acknowledgement at the end of the wait counts: select alone would choose at random.
func TestAwait_AnAcknowledgementAtTheLastMomentCounts(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var r Receiver
	for range 100 {
		a := &arrival{deadline: time.Now().Add(-time.Second), result: make(chan error, 1)}
		a.tell(nil)
		if err := r.await(ended, a); err != nil {
			t.Fatalf("acknowledged, and the sender is told %v", err)
		}
	}
}
