package flow

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
)

type patientSource struct{ pawl.Source }

type hastySource struct{ pawl.Source }

func (hastySource) AckAtOnce() {}

// Receipts wait a moment for company, unless somebody waits for them; what is there goes together.
func TestFlow_GathersReceipts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source  pawl.Source
		ready   int
		want    int
		elapsed time.Duration
	}{
		{patientSource{}, 0, 1, ackLinger},
		{patientSource{}, 3, 4, ackLinger},
		{patientSource{}, 20, ackBatch, 0},
		{hastySource{}, 0, 1, 0},
		{hastySource{}, 3, 4, 0},
		{hastySource{}, 20, ackBatch, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &Flow{cfg: Config{Source: c.source}, acks: make(chan pawl.Receipt, 32)}
			for range c.ready {
				f.acks <- pawl.Receipt{}
			}
			began := time.Now()
			if got := len(f.gather(pawl.Receipt{})); got != c.want || time.Since(began) != c.elapsed {
				t.Errorf("%T, %d more: %d in %v, want %d in %v", c.source, c.ready, got, time.Since(began), c.want, c.elapsed)
			}
		})
	}
}
