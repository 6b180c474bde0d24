package pawlnats_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlnats"
	"github.com/pawl-go/pawl/transport/transporttest"
)

func TestSource_Acceptance(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	transporttest.Run(t, transporttest.Broker{
		Features: transporttest.Features{Counted: true, ReleaseDelay: true, CrashRedelive: true, SentAt: true},
		Open: func(t *testing.T) transporttest.Queue {
			o := options{server: server}
			o.withDefaults()
			f := setup(t, o)
			crashed := map[pawl.Source]*nats.Conn{}
			return transporttest.Queue{
				Send: func(ctx context.Context, m transporttest.Message) error {
					n := nats.NewMsg(f.stream + ".placed")
					n.Data = m.Payload
					for name, value := range m.Attributes {
						n.Header.Set(name, value)
					}
					n.Header.Set("Idempotency-Key", m.Key)
					_, err := f.js.PublishMsg(ctx, n)
					return err
				},
				Source: func(t *testing.T) pawl.Source {
					js := connect(t, server.Addr())
					s, err := pawlnats.Open(t.Context(), js, f.stream, f.consumer, pawlnats.Config{Wait: time.Second})
					if err != nil {
						t.Fatal(err)
					}
					crashed[s] = js.Conn()
					return s
				},
				Abandon: func(s pawl.Source) { crashed[s].Close() },
			}
		},
	})
}

// Eight partitions, each with a consumer of its own, keep the order of a key.
func TestPartitions_Acceptance(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	const partitions = 8
	transporttest.Run(t, transporttest.Broker{
		Features: transporttest.Features{Ordered: true, Counted: true, ReleaseDelay: true, CrashRedelive: true, SentAt: true},
		Open: func(t *testing.T) transporttest.Queue {
			f := setupPartitions(t, server, partitions)
			crashed := map[pawl.Source]*nats.Conn{}
			return transporttest.Queue{
				Send: func(ctx context.Context, m transporttest.Message) error {
					n := nats.NewMsg(f.subject(m.OrderingKey))
					n.Data = m.Payload
					for name, value := range m.Attributes {
						n.Header.Set(name, value)
					}
					n.Header.Set("Idempotency-Key", m.Key)
					_, err := f.js.PublishMsg(ctx, n)
					return err
				},
				Source: func(t *testing.T) pawl.Source {
					js := connect(t, server.Addr())
					s := f.open(t, js)
					crashed[s] = js.Conn()
					return s
				},
				Abandon: func(s pawl.Source) { crashed[s].Close() },
			}
		},
	})
}

// A partitioned fixture is a stream whose subjects are STREAM.PARTITION.KEY, with a consumer for each partition.
type partitioned struct {
	js        jetstream.JetStream
	stream    string
	consumers []string
}

func setupPartitions(t testing.TB, server interface{ Addr() string }, n int) *partitioned {
	t.Helper()
	p := &partitioned{js: connect(t, server.Addr()), stream: fmt.Sprintf("P%d", names.Add(1))}
	if _, err := p.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: p.stream, Subjects: []string{p.stream + ".>"}}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("part-%d", i)
		if _, err := p.js.CreateConsumer(t.Context(), p.stream, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: ackWait, MaxDeliver: -1, MaxAckPending: 1, FilterSubject: fmt.Sprintf("%s.%d.>", p.stream, i)}); err != nil {
			t.Fatal(err)
		}
		p.consumers = append(p.consumers, name)
	}
	return p
}

// subject puts a key into its partition, as {{partition(8,1)}} of a server would.
func (p *partitioned) subject(key string) string {
	h := fnv.New32a()
	h.Write([]byte(key))
	return fmt.Sprintf("%s.%d.%s", p.stream, h.Sum32()%uint32(len(p.consumers)), key)
}

func (p *partitioned) open(t testing.TB, js jetstream.JetStream) *pawlnats.Partitions {
	t.Helper()
	s, err := pawlnats.OpenPartitions(t.Context(), js, p.stream, p.consumers, pawlnats.Config{Wait: time.Second, OrderingKey: pawlnats.BySubjectToken(3)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
