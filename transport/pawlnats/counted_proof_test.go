//go:build proof

package pawlnats_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/counted"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

func TestMain(m *testing.M) {
	counted.Main(m, counted.Opener{Source: openCounted, Sink: openCountedSink})
}

const countedAckWait = 3 * time.Second

// The counted runs pass with a durable consumer, which keeps no order, and with partitions, which
// deliver one message at a time each.
func TestCounted(t *testing.T) {
	t.Run("consumer", func(t *testing.T) { counted.All(t, countedNATS(false)) })
	t.Run("partitions", func(t *testing.T) { counted.All(t, countedNATS(true)) })
}

// The counted runs detect a broken consumer.
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
		cfg.OrderingKey = pawlnats.BySubjectToken(3)
		var consumers []string
		for part := range countedParts {
			consumers = append(consumers, countedConsumer(part))
		}
		return pawlnats.OpenPartitions(ctx, js, s.Name, consumers, cfg)
	}
	return pawlnats.Open(ctx, js, s.Name, "counted", cfg)
}

func openCountedSink(ctx context.Context, s counted.Spec) (pawl.Sink, error) {
	js, err := connectCounted(s.Addr)
	if err != nil {
		return nil, err
	}
	return pawlnats.OpenSink(ctx, js, s.Name, pawlnats.SinkConfig{SubjectOf: func(m pawl.Message) string { return countedSubject(s.Name, m.AggregateID) }})
}

// countedParts is the number of partitions of the ordered stream.
const countedParts = 6

// countedSubject returns the subject of a lane in its partition.
func countedSubject(stream, lane string) string {
	h := fnv.New32a()
	h.Write([]byte(lane))
	return fmt.Sprintf("%s.%d.%s", stream, h.Sum32()%countedParts, strings.ReplaceAll(lane, " ", "_"))
}

func countedConsumer(part int) string { return fmt.Sprintf("counted-%d", part) }

func countedNATS(ordered bool) counted.Transport {
	tr := counted.Transport{
		// Headers count too.
		Name: "nats", Session: countedAckWait, Ordered: ordered, Sequential: true, Points: []string{"nats.ack.before", "nats.ack.after"}, MaxBody: 1<<20 - 1024,
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
		tr.Name, tr.Options = "nats partitions", map[string]string{"ordered": "yes"}
	}
	return tr
}

func createCounted(ctx context.Context, js jetstream.JetStream, name string, ordered bool) error {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}); err != nil {
		return err
	}
	if !ordered {
		_, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: "counted", AckPolicy: jetstream.AckExplicitPolicy, AckWait: countedAckWait, MaxDeliver: -1})
		return err
	}
	for part := range countedParts {
		if _, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: countedConsumer(part), AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: countedAckWait, MaxDeliver: -1, MaxAckPending: 1, FilterSubject: fmt.Sprintf("%s.%d.>", name, part)}); err != nil {
			return err
		}
	}
	return nil
}
