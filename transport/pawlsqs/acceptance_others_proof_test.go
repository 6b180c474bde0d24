//go:build proof

package pawlsqs_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// others are SQS servers of other projects. moto loses the order of a group when it redelivers a
// message (check fifo/redelivery of the conformance suite), so its FIFO queues are not tested.
var others = map[string]struct {
	start func(context.Context, brokers.Options) (*brokers.Server, error)
	fifo  bool
}{
	"ElasticMQ":  {brokers.ElasticMQ, true},
	"LocalStack": {brokers.LocalStack, true},
	"moto":       {brokers.Moto, false},
}

// onOthers runs a test on each queue type of each server. The suffix of a standard queue is "".
func onOthers(t *testing.T, test func(t *testing.T, endpoint, suffix string)) {
	t.Parallel()
	for name, o := range others {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := o.start(t.Context(), brokers.Options{Log: func(line string) { t.Log(line) }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Stop() })
			t.Run("standard", func(t *testing.T) { test(t, "http://"+s.Addr(), "") })
			if o.fifo {
				t.Run("FIFO", func(t *testing.T) { test(t, "http://"+s.Addr(), ".fifo") })
			}
		})
	}
}

// Each server passes the acceptance suite for sources.
func TestOthers_Acceptance(t *testing.T) {
	var queues atomic.Int64
	onOthers(t, func(t *testing.T, endpoint, suffix string) {
		t.Parallel()
		b := transporttest.Broker{Features: standard, MostBody: 1<<20 - attributesSize, Open: func(t *testing.T) transporttest.Queue {
			return queueAt(t, endpoint, fmt.Sprintf("q-%d%s", queues.Add(1), suffix), suiteConfig)
		}}
		if suffix != "" {
			b.Features = fifo
		}
		transporttest.Run(t, b)
	})
}

// Each message is sent three times, handlers fail and consumers are killed. Each message takes
// effect once, none is lost, and FIFO queues keep their order. The servers themselves are not made
// to fail.
func TestOthers_Soak(t *testing.T) {
	onOthers(t, func(t *testing.T, endpoint, suffix string) {
		t.Parallel()
		s := newSoakAt(t, endpoint, "inline", "soak"+suffix, *soakFailures)
		s.play()
		s.judge()
	})
}
