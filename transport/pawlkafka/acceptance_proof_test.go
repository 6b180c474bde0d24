//go:build proof

package pawlkafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/transport/pawlkafka"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// features are the properties of a Kafka topic. A released record waits in its receiver's memory.
var features = transporttest.Features{Counted: true, ReleaseDelay: true, CrashRedelive: true, Sticky: true, Reconnects: true, Revoked: true, Octets: true,
	EmptyBodies: true, BinaryAttributes: true}

func TestAcceptance_Unordered(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, kafkaBroker(t, features, pawlkafka.Config{}))
}

func TestAcceptance_Keyed(t *testing.T) {
	t.Parallel()
	keyed := features
	keyed.Ordered, keyed.BinaryKeys = true, true
	transporttest.Run(t, kafkaBroker(t, keyed, pawlkafka.Config{}))
}

// The suite also passes with the KIP-848 group protocol.
func TestAcceptance_ServerSideBalancer(t *testing.T) {
	t.Parallel()
	keyed := features
	keyed.Ordered, keyed.BinaryKeys = true, true
	transporttest.Run(t, kafkaBroker(t, keyed, pawlkafka.Config{ServerSideBalancer: true}))
}

func kafkaBroker(t *testing.T, features transporttest.Features, cfg pawlkafka.Config) transporttest.Broker {
	at := addr(t)
	return transporttest.Broker{Features: features, Timeout: time.Minute,
		Open: func(t *testing.T) transporttest.Queue { return queueOn(t, at, cfg) },
		Alone: func(t *testing.T) transporttest.Queue {
			own := ownBroker(t)
			q := queueOn(t, own.Addr(), cfg)
			q.Bounce = func() error {
				own.Kill()
				return own.Start(t.Context())
			}
			return q
		}}
}

// ownBroker starts a broker that a test may kill.
func ownBroker(t testing.TB) *brokers.Server {
	t.Helper()
	s, err := brokers.Kafka(t.Context(), brokers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// session is the members' session timeout in the suite.
const session = 2 * time.Second

// queueOn creates a topic with one partition, because the suite's receivers share all messages.
func queueOn(t *testing.T, at string, cfg pawlkafka.Config) transporttest.Queue {
	topic := createTopic(t, at, 1, map[string]string{"max.message.bytes": "2097152"})
	group := "group." + topic
	producer := client(t, at, kgo.ProducerBatchMaxBytes(2<<20))
	admin := kadm.NewClient(client(t, at))
	wires := map[pawl.Source]*wire{}
	return transporttest.Queue{
		Send: func(ctx context.Context, m transporttest.Message) error {
			r := &kgo.Record{Topic: topic, Value: m.Payload, Headers: []kgo.RecordHeader{{Key: pawlkafka.DefaultKeyHeader, Value: []byte(m.Key)}}}
			if m.OrderingKey != "" {
				r.Key = []byte(m.OrderingKey)
			}
			for name, value := range m.Attributes {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
			}
			return producer.ProduceSync(ctx, r).FirstErr()
		},
		Source: func(t *testing.T) pawl.Source {
			w := &wire{}
			s := unprefixed{open(t, append(quick(at), kgo.Dialer(w.dial), kgo.SessionTimeout(session)), group, []string{topic}, cfg), topic + "/"}
			wires[s] = w
			return s
		},
		Abandon: func(s pawl.Source) {
			if err := pawlkafka.Commit(t.Context(), s.(unprefixed).Source); err != nil {
				t.Log(err) // the source may be disconnected already
			}
			wires[s].crash()
		},
		Disconnect: func(s pawl.Source) { wires[s].hangUp() },
		Revoke: func(s pawl.Source) { // the session expires while the source is disconnected
			wires[s].crash()
			await(t, "the group is empty", func() bool { return members(t, admin, group, cfg.ServerSideBalancer) == 0 })
			wires[s].mend()
		},
	}
}

func members(t testing.TB, admin *kadm.Client, group string, serverSide bool) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if serverSide {
		all, err := admin.DescribeConsumerGroups(ctx, group)
		if err != nil || all[group].Err != nil {
			t.Log(err, all[group].Err)
			return -1
		}
		return len(all[group].Members)
	}
	all, err := admin.DescribeGroups(ctx, group)
	if err != nil || all[group].Err != nil {
		t.Log(err, all[group].Err)
		return -1
	}
	return len(all[group].Members)
}

// unprefixed strips the topic from ordering keys, so that the suite finds those that it sent.
type unprefixed struct {
	*pawlkafka.Source
	prefix string
}

func (u unprefixed) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	ds, err := u.Source.Receive(ctx, max)
	for i := range ds {
		ds[i].OrderingKey = strings.TrimPrefix(ds[i].OrderingKey, u.prefix)
	}
	return ds, err
}
