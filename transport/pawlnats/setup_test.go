package pawlnats_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

// names makes names unique in this process, because tests share servers.
var names atomic.Int64

// startServer runs a NATS server for one test, which may kill or freeze it.
func startServer(t testing.TB) *brokers.Server {
	t.Helper()
	s, err := brokers.NATS(t.Context(), brokers.Options{Log: func(line string) { t.Log(line) }})
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

// connect opens a connection with the guide's options, but faster reconnects and longer timeouts.
func connect(t testing.TB, addr string, more ...nats.Option) jetstream.JetStream {
	t.Helper()
	options := append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.PingInterval(10 * time.Second), nats.Timeout(20 * time.Second)}, more...)
	conn, err := nats.Connect("nats://"+addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// A fixture is a stream with a durable consumer, and a source on it.
type fixture struct {
	testing.TB
	server   *brokers.Server
	js       jetstream.JetStream
	stream   string
	consumer string
	source   *pawlnats.Source
}

type options struct {
	stream   jetstream.StreamConfig
	consumer jetstream.ConsumerConfig
	config   pawlnats.Config
	server   *brokers.Server
	via      string // address of the source's connection
}

// ackWait is longer than any test or stall. Tests of its expiry set their own.
const ackWait = time.Minute

// withDefaults applies the guide's settings to the stream and the consumer, with test timeouts.
func (o *options) withDefaults() {
	n := names.Add(1)
	if o.stream.Name == "" {
		o.stream.Name = fmt.Sprintf("S%d", n)
	}
	if o.stream.Subjects == nil {
		o.stream.Subjects = []string{o.stream.Name + ".>"}
	}
	k := &o.consumer
	if k.Durable == "" {
		k.Durable = "billing"
	}
	if k.AckWait == 0 {
		k.AckWait = ackWait
	}
	if k.MaxDeliver == 0 {
		k.MaxDeliver = -1
	}
	k.AckPolicy = jetstream.AckExplicitPolicy
	if o.config.Wait == 0 {
		o.config.Wait = time.Second
	}
}

func setup(t testing.TB, o options) *fixture {
	t.Helper()
	o.withDefaults()
	if o.server == nil {
		o.server = startServer(t)
	}
	f := &fixture{TB: t, server: o.server, js: connect(t, o.server.Addr()), stream: o.stream.Name, consumer: o.consumer.Durable}
	f.create(o)
	js := f.js
	if o.via != "" {
		js = connect(t, o.via)
	}
	var err error
	f.source, err = pawlnats.Open(t.Context(), js, f.stream, f.consumer, o.config)
	f.must(err)
	return f
}

// create creates the stream and the consumer.
func (f *fixture) create(o options) {
	f.Helper()
	o.stream.Name = f.stream
	o.withDefaults()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := f.js.CreateStream(ctx, o.stream)
	f.must(err)
	_, err = f.js.CreateConsumer(ctx, f.stream, o.consumer)
	f.must(err)
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) publish(m *nats.Msg) *jetstream.PubAck {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ack, err := f.js.PublishMsg(ctx, m)
	f.must(err)
	return ack
}

func (f *fixture) send(keys ...string) {
	f.Helper()
	for _, key := range keys {
		m := nats.NewMsg(f.stream + ".placed")
		m.Header.Set("Idempotency-Key", key)
		m.Data = []byte("body of " + key)
		f.publish(m)
	}
}

// get receives until it has n deliveries.
func (f *fixture) get(n int) (all []pawl.Delivery) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	for len(all) < n {
		ds, err := f.source.Receive(ctx, n-len(all))
		if err != nil && ctx.Err() != nil {
			f.Fatalf("received %d of %d: %v", len(all), n, err)
		}
		all = append(all, ds...)
	}
	return all
}

// info returns JetStream's state of the consumer.
func (f *fixture) info() *jetstream.ConsumerInfo {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := f.js.Consumer(ctx, f.stream, f.consumer)
	f.must(err)
	return c.CachedInfo()
}

func (f *fixture) ack(ds ...pawl.Delivery) {
	f.Helper()
	f.must(f.source.Ack(context.Background(), committed(ds...)...))
}

// committed returns the receipts that a commit of the deliveries would return.
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

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	patience.Until(t, what, holds)
}
