package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
)

// Receipts wait a moment for company, unless a sender waits for them; what is there goes together.
func TestConsumer_GathersReceipts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		atOnce  bool
		ready   int
		want    int
		elapsed time.Duration
	}{
		{false, 0, 1, ackLinger},
		{false, 3, 4, ackLinger},
		{false, 20, ackBatch, 0},
		{true, 0, 1, 0},
		{true, 3, 4, 0},
		{true, 20, ackBatch, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &Consumer{info: pawl.SourceInfo{AckAtOnce: c.atOnce}, acks: make(chan pawl.Receipt, 32)}
			for range c.ready {
				f.acks <- pawl.Receipt{}
			}
			began := time.Now()
			if got := len(f.gather(pawl.Receipt{})); got != c.want || time.Since(began) != c.elapsed {
				t.Errorf("at once %t, %d more: %d in %v, want %d in %v", c.atOnce, c.ready, got, time.Since(began), c.want, c.elapsed)
			}
		})
	}
}
