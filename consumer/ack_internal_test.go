package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
)

// Receipts wait a moment for others, unless a sender waits for them.
func TestConsumer_GathersReceipts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		atOnce  bool
		batch   int
		ready   int
		want    int
		elapsed time.Duration
	}{
		{false, 10, 0, 1, ackLinger},
		{false, 10, 3, 4, ackLinger},
		{false, 10, 20, 10, 0},
		{true, 10, 0, 1, 0},
		{true, 10, 3, 4, 0},
		{true, 10, 20, 10, 0},
		{false, 1, 3, 1, 0},
		{false, 10_000, 20, 21, ackLinger},
		{true, 10_000, 20, 21, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &Consumer{info: pawl.SourceInfo{AckAtOnce: c.atOnce, AckBatch: c.batch}, acks: make(chan pawl.Receipt, 32)}
			for range c.ready {
				f.acks <- pawl.Receipt{}
			}
			began := time.Now()
			if got := len(f.gather(pawl.Receipt{})); got != c.want || time.Since(began) != c.elapsed {
				t.Errorf("at once %t, %d a call, %d more: %d in %v, want %d in %v", c.atOnce, c.batch, c.ready, got, time.Since(began), c.want, c.elapsed)
			}
		})
	}
}
