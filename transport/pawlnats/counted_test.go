package pawlnats_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/counted"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

func TestMain(m *testing.M) {
	counted.Main(m, counted.Opener{Source: openCounted, Sink: openCountedSink})
}

// The counted runs of package counted: a durable consumer that promises no order, and one that hands out one message at a time.
func TestCounted(t *testing.T) {
	t.Run("consumer", func(t *testing.T) { counted.All(t, countedNATS(false)) })
	t.Run("ordered", func(t *testing.T) { counted.All(t, countedNATS(true)) })
}

// The judge finds what a broken consumer does.
func TestCounted_FindsMutants(t *testing.T) {
	for _, c := range []struct {
		mutant  string
		run     counted.Run
		ordered bool
	}{
		{counted.AckFirst, counted.Kill, false},
		{counted.AckReleased, counted.Rolling, false},
		{counted.NoOrder, counted.Order, true},
	} {
		t.Run(c.mutant, func(t *testing.T) {
			t.Parallel()
			counted.MustFail(t, countedNATS(c.ordered), c.run, c.mutant)
		})
	}
}

func connectCounted(addr string) (jetstream.JetStream, error) {
	conn, err := nats.Connect("nats://"+addr, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.PingInterval(2*time.Second),
		nats.Timeout(2*time.Second))
	if err != nil {
		return nil, err
	}
	return jetstream.New(conn)
}

func openCounted(ctx context.Context, s counted.Spec) (pawl.Source, error) {
	js, err := connectCounted(s.Addr)
	if err != nil {
		return nil, err
	}
	cfg := pawlnats.Config{Wait: time.Second}
	if s.Options["ordered"] != "" {
		cfg.OrderingKey = pawlnats.BySubject
	}
	return pawlnats.Open(ctx, js, s.Name, "counted", cfg)
}

func openCountedSink(_ context.Context, s counted.Spec) (pawl.Sink, error) {
	js, err := connectCounted(s.Addr)
	if err != nil {
		return nil, err
	}
	return outbox.Func(func(ctx context.Context, m pawl.Message) error {
		n := nats.NewMsg(countedSubject(s.Name, m.AggregateID))
		n.Data = m.Payload
		n.Header.Set(nats.MsgIdHdr, m.ID)
		_, err := js.PublishMsg(ctx, n)
		return pawl.SinkDown(err)
	}), nil
}

func countedSubject(stream, lane string) string {
	return stream + "." + strings.ReplaceAll(lane, " ", "_")
}

func countedNATS(ordered bool) counted.Transport {
	tr := counted.Transport{
		Name: "nats", Session: ackWait, Ordered: ordered, MaxBody: 1<<20 - 1024, // the headers count
		Start: func(t testing.TB, _ counted.Need) counted.Broker { return startServer(t) },
		Create: func(ctx context.Context, q counted.Queue) error {
			js, err := connectCounted(q.Broker.Addr())
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			return createCounted(ctx, js, q.Name, ordered)
		},
		Forget: func(ctx context.Context, q counted.Queue) error {
			js, err := connectCounted(q.Broker.Addr())
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			if err := js.DeleteStream(ctx, q.Name); err != nil {
				return err
			}
			return createCounted(ctx, js, q.Name, ordered)
		},
		Send: func(ctx context.Context, q counted.Queue, ms []counted.Message) error {
			js, err := connectCounted(q.Broker.Addr())
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			for _, m := range ms {
				n := nats.NewMsg(countedSubject(q.Name, m.Lane))
				n.Data = m.Body
				if m.Key != "" {
					n.Header.Set("Idempotency-Key", m.Key)
				}
				if _, err := js.PublishMsg(ctx, n); err != nil {
					return err
				}
			}
			return nil
		},
		Left: func(ctx context.Context, q counted.Queue) (left int, err error) {
			js, err := connectCounted(q.Broker.Addr())
			if err != nil {
				return 0, err
			}
			defer js.Conn().Close()
			stream, err := js.Stream(ctx, q.Name)
			if err != nil {
				return 0, err
			}
			consumers := stream.ListConsumers(ctx)
			for info := range consumers.Info() {
				left += int(info.NumPending) + info.NumAckPending
			}
			return left, consumers.Err()
		},
	}
	if ordered {
		tr.Name, tr.Options = "nats ordered", map[string]string{"ordered": "yes"}
	}
	return tr
}

func createCounted(ctx context.Context, js jetstream.JetStream, name string, ordered bool) error {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}); err != nil {
		return err
	}
	c := jetstream.ConsumerConfig{Durable: "counted", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1}
	if ordered {
		c.MaxAckPending = 1
	}
	_, err := js.CreateConsumer(ctx, name, c)
	return err
}
