//go:build proof

package pawlkafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/internal/testbed/counted"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

// shared is the Kafka of this test binary. Tests that kill a broker start their own.
var shared = sync.OnceValues(func() (*brokers.Server, error) {
	started.Store(true)
	return brokers.Kafka(context.Background(), brokers.Options{Log: func(line string) { fmt.Fprintln(os.Stderr, line) }})
})

var started atomic.Bool

func TestMain(m *testing.M) {
	counted.Work(counted.Opener{Source: openCounted, Sink: openCountedSink})
	code := m.Run()
	if started.Load() {
		if s, err := shared(); err == nil {
			_ = s.Stop()
		}
	}
	os.Exit(code)
}

// addr returns the address of the shared broker.
func addr(t testing.TB) string {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s.Addr()
}

// client returns a plain client for the test's own requests.
func client(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.MetadataMinAge(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// unique returns a name for a topic or group of one test.
func unique(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("t%d", names.next())
}

var names = &counter{}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// createTopic creates a topic with a unique name and returns that name.
func createTopic(t testing.TB, addr string, partitions int32, settings map[string]string) string {
	t.Helper()
	topic := "topic." + unique(t)
	makeTopic(t, addr, topic, partitions, settings)
	return topic
}

func makeTopic(t testing.TB, addr, topic string, partitions int32, settings map[string]string) {
	t.Helper()
	configs := map[string]*string{}
	for k, v := range settings {
		configs[k] = &v
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin := kadm.NewClient(client(t, addr))
	if _, err := admin.CreateTopic(ctx, partitions, -1, configs, topic); err != nil {
		t.Fatal(err)
	}
	await(t, "topic "+topic+" has leaders", func() bool { // wait until the topic is fully created
		ends, err := admin.ListEndOffsets(ctx, topic)
		return err == nil && ends.Error() == nil && len(ends[topic]) == int(partitions)
	})
}

// produce sends records and fails the test if one is refused.
func produce(t testing.TB, addr string, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// keyed returns a record with an idempotency key.
func keyed(topic string, partition int32, key string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte("body of " + key),
		Headers: []kgo.RecordHeader{{Key: pawlkafka.DefaultKeyHeader, Value: []byte(key)}}}
}

// quick returns options with short intervals, so that the group reacts soon.
func quick(addr string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(addr), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond)}
}

// A wire is the network of one source. crash cuts it: the broker receives nothing more.
type wire struct {
	mu    sync.Mutex
	conns []net.Conn
	cut   bool
}

func (w *wire) dial(ctx context.Context, network, host string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		_ = c.Close()
		return nil, errors.New("the wire is cut")
	}
	w.conns = append(w.conns, c)
	return c, nil
}

func (w *wire) crash() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// hangUp closes the current connections; new ones can be made.
func (w *wire) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// open opens a source that the test finishes.
func open(t testing.TB, opts []kgo.Opt, group string, topics []string, cfg pawlkafka.Config) *pawlkafka.Source {
	t.Helper()
	if cfg.Wait == 0 {
		cfg.Wait = 500 * time.Millisecond
	}
	s, err := pawlkafka.Open(t.Context(), opts, group, topics, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finish(s) })
	return s
}

func finish(s *pawlkafka.Source) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = s.Finish(ctx) // an error: the test finished it already
}

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// get receives until it has n deliveries.
func get(t testing.TB, s *pawlkafka.Source, n int) (all []pawl.Delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for len(all) < n {
		ds, err := s.Receive(ctx, n-len(all))
		if err != nil {
			t.Fatalf("received %d of %d: %v", len(all), n, err)
		}
		all = append(all, ds...)
	}
	return all
}
