//go:build proof

package pawlrabbitmq_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/bounds"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// sourceBounds and sinkBounds are the bounds that Config and SinkConfig document.
var (
	sourceBounds = []bounds.Setting{
		{Name: "Prefetch", Least: 1, Most: 10_000},
		{Name: "Wait", Least: 50 * time.Millisecond, Most: longestWait},
		{Name: "RedeliveryHorizon", Least: time.Minute, Most: pawl.Forever},
	}
	sinkBounds = []bounds.Setting{{Name: "MaxSize", Least: 1, Most: 512 << 20}}
)

const longestWait = 30 * time.Second

func TestBounds_AreAllHere(t *testing.T) {
	t.Parallel()
	bounds.Complete[pawlrabbitmq.Config](t, sourceBounds...)
	bounds.Complete[pawlrabbitmq.SinkConfig](t, sinkBounds...)
}

// Open and OpenSink refuse a value just outside its bounds, and name the setting.
func TestBounds_Refused(t *testing.T) {
	t.Parallel()
	f := queueOn(t, sharedServer(t), quorum())
	dial := dialer(f.server.Addr())
	bounds.Refused(t, func(cfg pawlrabbitmq.Config) error {
		_, err := openWith(t, dial, f.queue, cfg)
		return err
	}, sourceBounds...)
	bounds.Refused(t, func(cfg pawlrabbitmq.SinkConfig) error {
		s, err := pawlrabbitmq.OpenSink(t.Context(), dial, "", cfg)
		if err == nil {
			_ = s.Close()
		}
		return err
	}, sinkBounds...)
}

// The acceptance suite passes at the smallest and largest documented value of each setting of a
// source. The largest Wait has its own test, because the suite calls idle receivers in turn.
func TestAcceptance_Bounds(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	base := pawlrabbitmq.Config{Wait: 200 * time.Millisecond}
	for name, cfg := range bounds.Each(base, sourceBounds...) {
		if cfg.Wait == longestWait {
			cfg.Wait = base.Wait
		}
		try := func(kind string, args amqp.Table, ordered bool) {
			cfg := cfg
			if ordered {
				cfg.OrderingKey = pawlrabbitmq.ByHeader("account")
			}
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				b := broker(server, args, cfg)
				b.Alone = nil // a bounce does not depend on a bound
				b.Timeout = 3 * time.Minute
				transporttest.Run(t, b)
			})
		}
		try("quorum", quorum(), false)
		try("single active consumer", single(), true)
	}
}

// At the largest Wait, Receive still returns when a message comes or its context ends.
func TestReceive_LargestWait(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum(), pawlrabbitmq.Config{Wait: longestWait})
	bounds.LongWait(t, f.source, func() { f.send("a") })
}

// A source behind the active consumer of its queue waits while that one holds messages. It has no
// error, and receives once the active one has left.
func TestSource_StandsByBehindABacklog(t *testing.T) {
	t.Parallel()
	f := setup(t, single(), pawlrabbitmq.Config{Prefetch: 1, OrderingKey: pawlrabbitmq.ByQueue})
	f.send("1", "2", "3")
	f.wantKeys(f.get(1), "1")
	standby, _ := f.open(pawlrabbitmq.Config{Prefetch: 1, OrderingKey: pawlrabbitmq.ByQueue, Wait: 50 * time.Millisecond})
	for range 160 { // 8 s, longer than idleTime
		if ds, err := standby.Receive(t.Context(), 1); err != nil || len(ds) > 0 {
			t.Fatalf("received %v, %v", keys(ds), err)
		}
	}
	f.must(f.source.Finish(t.Context()))
	f.wantKeys(f.getFrom(standby, 1), "1")
}

// The suite for sinks passes at the smallest and largest MaxSize.
func TestSink_Bounds(t *testing.T) {
	t.Parallel()
	for name, cfg := range bounds.Each(pawlrabbitmq.SinkConfig{}, sinkBounds...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := destination(cfg)
			open := d.Open
			d.Open = func(t *testing.T, a *transporttest.Responses) transporttest.Outlet {
				o := open(t, a)
				o.Sink = shortened{o.Sink.(*pawlrabbitmq.Sink), cfg.MaxSize}
				return o
			}
			transporttest.RunSink(t, d)
		})
	}
}

// A shortened sink cuts payloads to its MaxSize.
type shortened struct {
	*pawlrabbitmq.Sink
	most int
}

func (s shortened) cut(ms []pawl.Message) []pawl.Message {
	short := make([]pawl.Message, len(ms))
	for i, m := range ms {
		m.Payload = m.Payload[:min(s.most, len(m.Payload))]
		short[i] = m
	}
	return short
}

func (s shortened) Publish(ctx context.Context, ms []pawl.Message) []error {
	return s.Sink.Publish(ctx, s.cut(ms))
}

func (s shortened) PublishBatch(ctx context.Context, ms []pawl.Message) (int, error) {
	return s.Sink.PublishBatch(ctx, s.cut(ms))
}
