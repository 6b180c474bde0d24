//go:build proof

package pawlrabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/internal/testbed/counted"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

func TestMain(m *testing.M) {
	counted.Work(counted.Opener{Source: openCounted, Sink: openCountedSink})
	code := m.Run()
	if shared.server != nil {
		_ = shared.server.Stop()
	}
	os.Exit(code)
}

// A rabbit is a server with its management API.
type rabbit struct {
	*brokers.Server
	management string
	addr       string // of a server that another process runs
}

func (r *rabbit) Addr() string {
	if r.Server == nil {
		return r.addr
	}
	return r.Server.Addr()
}

// shared is the server of all tests that do not kill it. A start takes 10 s.
var shared struct {
	sync.Once
	server *rabbit
	err    error
}

// mostOctets is max_message_size of the test servers.
const mostOctets = 2 << 20

func sharedServer(t testing.TB) *rabbit {
	t.Helper()
	shared.Do(func() { shared.server, shared.err = startRabbit(context.Background(), nil) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

func startRabbit(ctx context.Context, more map[string]string) (*rabbit, error) {
	port, err := brokers.FreePort()
	if err != nil {
		return nil, err
	}
	settings := map[string]string{brokers.ManagementPort: strconv.Itoa(port), "max_message_size": strconv.Itoa(mostOctets)}
	maps.Copy(settings, more)
	s, err := brokers.RabbitMQ(ctx, brokers.Options{Settings: settings})
	return &rabbit{Server: s, management: fmt.Sprintf("http://guest:guest@127.0.0.1:%d", port)}, err
}

// manage writes to the management API of the shared server.
func manage(t testing.TB, path, body string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPut, sharedServer(t).management+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("%s: %d %s", path, response.StatusCode, text)
	}
}

// startServer runs a server that the test may kill and freeze.
func startServer(t testing.TB) *rabbit {
	t.Helper()
	s, err := startRabbit(t.Context(), nil)
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

func urlOf(addr string) string { return "amqp://guest:guest@" + addr + "/" }

// heartbeat of tests detects a silent connection after 3 s.
const heartbeat = time.Second

func dialer(addr string) pawlrabbitmq.Dialer {
	return pawlrabbitmq.URLConfig(urlOf(addr), amqp.Config{Heartbeat: heartbeat})
}

// A knife is a Dialer whose connections a test can cut, as if the process died.
type knife struct {
	mu    sync.Mutex
	conns []*amqp.Connection
	addr  string
	dead  bool
}

func (k *knife) dial() (*amqp.Connection, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return nil, errors.New("this process is dead")
	}
	conn, err := dialer(k.addr)()
	if err == nil {
		k.conns = append(k.conns, conn)
	}
	return conn, err
}

// cut closes all sockets without closing the AMQP connections.
func (k *knife) cut(dead bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = dead
	for _, conn := range k.conns {
		_ = conn.CloseDeadline(time.Now().Add(-time.Second))
	}
	k.conns = nil
}

var names atomic.Int64

// quorum returns queue arguments as the guide recommends, plus pairs of others.
func quorum(more ...any) amqp.Table {
	args := amqp.Table{"x-queue-type": "quorum"}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return args
}

func single() amqp.Table { return quorum("x-single-active-consumer", true) }

// A fixture is a queue, with a source on it and another connection.
type fixture struct {
	testing.TB
	server *rabbit
	conn   *amqp.Connection
	ch     *amqp.Channel
	queue  string
	knife  *knife
	source *pawlrabbitmq.Source

	sending sync.Mutex
}

// queueOn declares a queue that ends with the test.
func queueOn(t testing.TB, server *rabbit, args amqp.Table) *fixture {
	t.Helper()
	f := &fixture{TB: t, server: server, queue: fmt.Sprintf("q%d-%d", os.Getpid(), names.Add(1))}
	f.connect()
	_, err := f.ch.QueueDeclare(f.queue, true, false, false, false, args)
	f.must(err)
	return f
}

// rooted waits until the broker has persisted the queue.
func rooted(t testing.TB, server *rabbit, queue string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := brokers.AwaitQuorumQueue(ctx, server.Server, queue); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) connect() {
	f.Helper()
	var err error
	f.conn, err = dialer(f.server.Addr())()
	f.must(err)
	conn := f.conn
	f.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) })
	f.ch, err = f.conn.Channel()
	f.must(err)
	f.must(f.ch.Confirm(false))
}

func setup(t testing.TB, args amqp.Table, cfg pawlrabbitmq.Config) *fixture {
	t.Helper()
	f := queueOn(t, sharedServer(t), args)
	f.source, f.knife = f.open(cfg)
	return f
}

// open opens another source on the queue.
func (f *fixture) open(cfg pawlrabbitmq.Config) (*pawlrabbitmq.Source, *knife) {
	f.Helper()
	if cfg.Wait == 0 {
		cfg.Wait = time.Second
	}
	k := &knife{addr: f.server.Addr()}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := pawlrabbitmq.Open(ctx, k.dial, f.queue, cfg)
	f.must(err)
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Finish(ctx)
	})
	return s, k
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// publish sends one message and waits until the broker has it.
func (f *fixture) publish(p amqp.Publishing) {
	f.Helper()
	f.publishTo("", f.queue, p)
}

func (f *fixture) publishTo(exchange, key string, p amqp.Publishing) {
	f.Helper()
	p.DeliveryMode = amqp.Persistent
	confirm, err := f.ch.PublishWithDeferredConfirm(exchange, key, true, false, p)
	f.must(err)
	if !confirm.Wait() {
		f.Fatal("the broker refused a message")
	}
}

func (f *fixture) send(keys ...string) {
	f.Helper()
	for _, key := range keys {
		f.publish(amqp.Publishing{MessageId: key, Body: []byte("body of " + key)})
	}
}

// get receives n deliveries.
func (f *fixture) get(n int) (all []pawl.Delivery) {
	f.Helper()
	return f.getFrom(f.source, n)
}

func (f *fixture) getFrom(s *pawlrabbitmq.Source, n int) (all []pawl.Delivery) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for len(all) < n {
		ds, err := s.Receive(ctx, n-len(all))
		if ctx.Err() != nil {
			f.Fatalf("received %d of %d: %v", len(all), n, err)
		}
		if err != nil {
			f.Logf("received %d of %d: %v", len(all), n, err)
			time.Sleep(50 * time.Millisecond)
		}
		all = append(all, ds...)
	}
	return all
}

func (f *fixture) ack(ds ...pawl.Delivery) {
	f.Helper()
	f.must(f.source.Ack(context.Background(), committed(ds...)...))
}

// stop ends receiving as a consumer does.
func stop(s *pawlrabbitmq.Source) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = s.Receive(ctx, 1)
}

// waiting returns the number of messages that no consumer has.
func (f *fixture) waiting() int {
	f.Helper()
	q, err := f.ch.QueueDeclarePassive(f.queue, true, false, false, false, nil)
	f.must(err)
	return q.Messages
}

// committed returns valid receipts.
func committed(ds ...pawl.Delivery) (rs []pawl.Receipt) {
	for _, d := range ds {
		rs = append(rs, receipt.Committed[pawl.Receipt](d.Handle))
	}
	return rs
}

func keys(ds []pawl.Delivery) (all []string) {
	for _, d := range ds {
		all = append(all, d.Key)
	}
	return all
}

func (f *fixture) wantKeys(ds []pawl.Delivery, want ...string) {
	f.Helper()
	if got := keys(ds); !slices.Equal(got, want) {
		f.Fatalf("received %v, want %v", got, want)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
