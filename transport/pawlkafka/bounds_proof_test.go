//go:build proof

package pawlkafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/transport/pawlkafka"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// The acceptance suite holds at the least and at the largest value of each setting of a source, as
// they are documented to be allowed. The largest Wait has a test of its own: the suite asks
// receivers in turn that have nothing.
func TestAcceptance_Bounds(t *testing.T) {
	t.Parallel()
	keyed := features
	keyed.Ordered, keyed.BinaryKeys = true, true
	narrow := keyed
	narrow.Narrow = true
	for name, c := range map[string]struct {
		features transporttest.Features
		cfg      pawlkafka.Config
	}{
		"Wait 50 ms":            {keyed, pawlkafka.Config{Wait: 50 * time.Millisecond}},
		"MaxRecords 1":          {narrow, pawlkafka.Config{MaxRecords: 1}},
		"MaxRecords 100,000":    {keyed, pawlkafka.Config{MaxRecords: 100_000}},
		"MaxOctets 1":           {narrow, pawlkafka.Config{MaxOctets: 1}},
		"MaxOctets 1 GiB":       {keyed, pawlkafka.Config{MaxOctets: 1 << 30}},
		"MaxTotalOctets 1":      {narrow, pawlkafka.Config{MaxOctets: 1, MaxTotalOctets: 1}},
		"MaxTotalOctets 64 GiB": {keyed, pawlkafka.Config{MaxTotalOctets: 64 << 30}},
		"all least":             {narrow, pawlkafka.Config{Wait: 50 * time.Millisecond, MaxRecords: 1, MaxOctets: 1, MaxTotalOctets: 1}},
		"all largest":           {keyed, pawlkafka.Config{MaxRecords: 100_000, MaxOctets: 1 << 30, MaxTotalOctets: 64 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := kafkaBroker(t, c.features, c.cfg)
			b.Alone = nil // a bounce has nothing to do with a bound, and each needs a broker of its own
			transporttest.Run(t, b)
		})
	}
}

// At the largest Wait a Receive still returns with what comes, and with the end of its context.
func TestReceive_LargestWait(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 1, nil)
	s := open(t, quick(at), unique(t), []string{topic}, pawlkafka.Config{Wait: 30 * time.Second})
	produce(t, at, keyed(topic, 0, "first"))
	ack(t, s, get(t, s, 1)...)
	received := make(chan []pawl.Delivery, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		for {
			ds, err := s.Receive(ctx, 1)
			if err != nil {
				failed <- err
				return
			}
			if len(ds) > 0 {
				received <- ds
			}
		}
	}()
	produce(t, at, keyed(topic, 0, "second"))
	if got := keysOf(patience.Receive(t, "the second record", received)); got != "second" {
		t.Errorf("received %s", got)
	}
	cancel()
	if err := patience.Receive(t, "the end of Receive", failed); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the context came as %v", err)
	}
}
