//go:build proof

package pawlnats_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/bounds"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/transport/pawlnats"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// sourceBounds are the bounds that Config documents. A sink has no numeric setting.
var sourceBounds = []bounds.Setting{
	{Name: "Wait", Least: 50 * time.Millisecond, Most: longestWait},
	{Name: "Batch", Least: 1, Most: 1000},
}

const longestWait = 30 * time.Second

func TestBounds_AreAllHere(t *testing.T) {
	t.Parallel()
	bounds.Complete[pawlnats.Config](t, sourceBounds...)
	bounds.Complete[pawlnats.SinkConfig](t)
}

// Open refuses a value just outside its bounds, and the error names the setting. So does
// OpenPartitions, which also refuses no consumers or too many.
func TestBounds_Refused(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	bounds.Refused(t, func(cfg pawlnats.Config) error {
		_, err := pawlnats.Open(t.Context(), f.js, f.stream, f.consumer, cfg)
		return err
	}, sourceBounds...)
	p := setupPartitions(t, f.server, 1)
	ordered := pawlnats.Config{OrderingKey: pawlnats.BySubject}
	bounds.Refused(t, func(cfg pawlnats.Config) error {
		cfg.OrderingKey = ordered.OrderingKey
		_, err := pawlnats.OpenPartitions(t.Context(), p.js, p.stream, p.consumers, cfg)
		return err
	}, sourceBounds...)
	for _, n := range []int{0, 257} {
		want := fmt.Sprintf("there are %d consumers, allowed are 1 to 256", n)
		if _, err := pawlnats.OpenPartitions(t.Context(), p.js, p.stream, make([]string, n), ordered); !errors.Is(err, pawl.ErrArgumentInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want %q", err, want)
		}
	}
}

// The acceptance suite passes at the least and the largest documented value of each setting. The
// largest Wait has its own test, because the suite receives from empty sources one after the other.
func TestAcceptance_Bounds(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	base := pawlnats.Config{Wait: 200 * time.Millisecond}
	for name, cfg := range bounds.Each(base, sourceBounds...) {
		if cfg.Wait == longestWait {
			cfg.Wait = base.Wait
		}
		for kind, b := range map[string]transporttest.Broker{"one consumer": broker(server, jetstream.ConsumerConfig{}, cfg), "partitions": partitionBroker(server, 12, cfg)} {
			t.Run(kind+", "+name, func(t *testing.T) { alike(t, b) })
		}
	}
}

// alike runs the suite without restarts of the server, which do not depend on bounds.
func alike(t *testing.T, b transporttest.Broker) {
	t.Parallel()
	b.Alone, b.Timeout = nil, 3*time.Minute
	transporttest.Run(t, b)
}

// At the largest Wait, Receive still returns when a message arrives or its context ends.
func TestReceive_LargestWait(t *testing.T) {
	t.Parallel()
	f := setup(t, options{config: pawlnats.Config{Wait: longestWait}})
	bounds.LongWait(t, f.source, func() { f.send("a") })
}

// The suite passes with the least and the largest number of partitions.
func TestPartitions_Bounds(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for _, n := range []int{1, 256} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			alike(t, partitionBroker(server, n, pawlnats.Config{Wait: 200 * time.Millisecond}))
		})
	}
}

// A message that exceeds the consumer's MaxRequestMaxBytes can never be received. Receive returns
// an error that says what to change. Smaller messages before it come without an error.
func TestReceive_ReportsAMessageThatNeverFits(t *testing.T) {
	t.Parallel()
	f := setup(t, options{consumer: jetstream.ConsumerConfig{MaxRequestMaxBytes: 1000}})
	for _, size := range []int{400, 400, 400, 1001} {
		m := nats.NewMsg(f.stream + ".placed")
		m.Data = make([]byte, size)
		f.publish(m)
	}
	f.ack(f.get(3)...)
	if s := f.source.Stats(); s.PollErrors != 0 || s.Polls < 2 {
		t.Errorf("three messages, of which two fit at once: %+v", s)
	}
	const want = "remove the consumer's MaxRequestMaxBytes"
	patience.Until(t, "the error says what to change", func() bool {
		ds, err := f.source.Receive(t.Context(), 10)
		if len(ds) > 0 || err != nil && !strings.Contains(err.Error(), want) {
			t.Fatalf("received %v, %v", keys(ds), err)
		}
		return err != nil
	})
}

// The suite passes on consumers with the least limits that JetStream accepts, and with none.
func TestAcceptance_LimitsOfTheConsumer(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for name, k := range map[string]jetstream.ConsumerConfig{
		"MaxAckPending 1":       {MaxAckPending: 1},
		"MaxAckPending none":    {MaxAckPending: -1},
		"MaxRequestBatch 1":     {MaxRequestBatch: 1},
		"MaxRequestExpires 1ms": {MaxRequestExpires: time.Millisecond},
		"all least":             {MaxAckPending: 1, MaxRequestBatch: 1, MaxRequestExpires: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) { alike(t, broker(server, k, pawlnats.Config{Wait: 200 * time.Millisecond})) })
	}
}
