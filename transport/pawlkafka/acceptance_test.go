package pawlkafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlkafka"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// Records without a key have no order.
func TestAcceptance_Unordered(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, kafkaBroker(t, transporttest.Features{Counted: true, ReleaseDelay: true, CrashRedelive: true}, pawlkafka.Config{}))
}

// Records with a key are ordered.
func TestAcceptance_Keyed(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, kafkaBroker(t, transporttest.Features{Ordered: true, Counted: true, ReleaseDelay: true, CrashRedelive: true}, pawlkafka.Config{}))
}

// The same through the group protocol of KIP-848.
func TestAcceptance_ServerSideBalancer(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, kafkaBroker(t, transporttest.Features{Ordered: true, Counted: true, ReleaseDelay: true, CrashRedelive: true},
		pawlkafka.Config{ServerSideBalancer: true}))
}

// kafkaBroker is a topic of one partition for each test, as the suite asks several receivers for the same messages.
func kafkaBroker(t *testing.T, features transporttest.Features, cfg pawlkafka.Config) transporttest.Broker {
	at := addr(t)
	return transporttest.Broker{Features: features, Timeout: time.Minute, Open: func(t *testing.T) transporttest.Queue {
		topic := createTopic(t, at, 1, nil)
		producer := client(t, at)
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
				s := unprefixed{open(t, append(quick(at), kgo.Dialer(w.dial), kgo.SessionTimeout(2*time.Second)), "group."+topic, []string{topic}, cfg), topic + "/"}
				wires[s] = w
				return s
			},
			Abandon: func(s pawl.Source) { wires[s].crash() },
		}
	}}
}

// unprefixed takes the topic from ordering keys, which the suite compares with those that it sent.
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
