package pawlnats_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/transport/pawlnats"
	"github.com/pawl-go/pawl/transport/transporttest"
)

var features = transporttest.Features{Counted: true, ReleaseDelay: true, CrashRedelive: true, SentAt: true, Reconnects: true, Revoked: true,
	Octets: true, EmptyBodies: true, BinaryAttributes: true}

// headersSize exceeds the headers of the suite's messages; NATS counts headers with the body.
const headersSize = 1 << 10

func TestSource_Acceptance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, broker(startServer(t), jetstream.ConsumerConfig{}, pawlnats.Config{Wait: time.Second}))
}

// broker gives the suite streams on a server, each with one consumer.
func broker(shared *brokers.Server, k jetstream.ConsumerConfig, cfg pawlnats.Config) transporttest.Broker {
	k.AckWait = crashWait
	open := func(t *testing.T, server *brokers.Server) transporttest.Queue {
		f := setup(t, options{server: server, consumer: k})
		return queueOn(f, func(string) string { return f.stream + ".placed" }, func(t *testing.T, js jetstream.JetStream) pawl.Source {
			s, err := pawlnats.Open(t.Context(), js, f.stream, f.consumer, cfg)
			f.must(err)
			return s
		})
	}
	b := transporttest.Broker{Features: features, MostBody: 1<<20 - headersSize,
		Open:  func(t *testing.T) transporttest.Queue { return open(t, shared) },
		Alone: func(t *testing.T) transporttest.Queue { return open(t, startServer(t)) }}
	b.Features.Single = k.MaxAckPending == 1
	return b
}

// Twelve partitions, each with its own consumer, keep the order of a key. The first twelve keys of
// a test get a partition each, because keys that share one wait for each other.
func TestPartitions_Acceptance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, partitionBroker(startServer(t), 12, pawlnats.Config{Wait: time.Second}))
}

// partitionBroker gives the suite streams with several partitions each.
func partitionBroker(shared *brokers.Server, partitions int, cfg pawlnats.Config) transporttest.Broker {
	open := func(t *testing.T, server *brokers.Server) transporttest.Queue {
		p := setupPartitions(t, server, partitions)
		f := &fixture{TB: t, server: server, js: p.js, stream: p.stream}
		return queueOn(f, p.subject, func(t *testing.T, js jetstream.JetStream) pawl.Source { return p.open(t, js, cfg) })
	}
	b := transporttest.Broker{Features: features, MostBody: 1<<20 - headersSize,
		Open:  func(t *testing.T) transporttest.Queue { return open(t, shared) },
		Alone: func(t *testing.T) transporttest.Queue { return open(t, startServer(t)) }}
	b.Features.Ordered, b.Features.Single = true, partitions == 1
	return b
}

// crashWait is the suite's AckWait: it waits that long for the messages of a crashed receiver.
const crashWait = 5 * time.Second

// queueOn gives the suite one stream. Each source has its own connection through a proxy.
func queueOn(f *fixture, subject func(key string) string, open func(*testing.T, jetstream.JetStream) pawl.Source) transporttest.Queue {
	type line struct {
		conn  *nats.Conn
		proxy *wireproxy.Proxy
	}
	lines := map[pawl.Source]line{}
	return transporttest.Queue{
		Send: func(ctx context.Context, m transporttest.Message) error {
			n := nats.NewMsg(subject(m.OrderingKey))
			n.Data = m.Payload
			for name, value := range m.Attributes {
				n.Header.Set(name, value)
			}
			n.Header.Set("Idempotency-Key", m.Key)
			_, err := f.js.PublishMsg(ctx, n)
			return err
		},
		Source: func(t *testing.T) pawl.Source {
			proxy, front, err := wireproxy.Listen()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(proxy.Close)
			proxy.Redirect(f.server.Addr())
			js := connect(t, front)
			s := open(t, js)
			lines[s] = line{js.Conn(), proxy}
			return s
		},
		Abandon:    func(s pawl.Source) { lines[s].conn.Close() },
		Disconnect: func(s pawl.Source) { _ = lines[s].conn.ForceReconnect() },
		Revoke: func(s pawl.Source) { // the network is silent for longer than AckWait
			thaw := lines[s].proxy.Freeze()
			patience.Elapse(crashWait + time.Second)
			thaw()
		},
		Bounce: func() error {
			f.server.Kill()
			return f.server.Start(context.Background())
		},
	}
}

// A partitioned fixture is a stream with subjects STREAM.PARTITION.KEY, and its consumers.
type partitioned struct {
	js        jetstream.JetStream
	stream    string
	consumers []string

	mu    sync.Mutex
	parts map[string]int // by key
}

func setupPartitions(t testing.TB, server interface{ Addr() string }, n int) *partitioned {
	t.Helper()
	p := &partitioned{js: connect(t, server.Addr()), stream: fmt.Sprintf("P%d", names.Add(1)), parts: map[string]int{}}
	if _, err := p.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: p.stream, Subjects: []string{p.stream + ".>"}}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("part-%d", i)
		if _, err := p.js.CreateConsumer(t.Context(), p.stream, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: crashWait, MaxDeliver: -1, MaxAckPending: 1, FilterSubject: fmt.Sprintf("%s.%d.>", p.stream, i)}); err != nil {
			t.Fatal(err)
		}
		p.consumers = append(p.consumers, name)
	}
	return p
}

// subject returns the subject of a key. A new key goes to the next partition, round robin.
func (p *partitioned) subject(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	part, known := p.parts[key]
	if !known {
		part = len(p.parts) % len(p.consumers)
		p.parts[key] = part
	}
	return fmt.Sprintf("%s.%d.%s", p.stream, part, key)
}

func (p *partitioned) open(t testing.TB, js jetstream.JetStream, cfg pawlnats.Config) *pawlnats.Partitions {
	t.Helper()
	cfg.OrderingKey = pawlnats.BySubjectToken(3)
	s, err := pawlnats.OpenPartitions(t.Context(), js, p.stream, p.consumers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
