//go:build proof

package pawlrabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// An outlet is a topic exchange with one queue, bound for order.*, and a sink on it.
type outlet struct {
	*fixture
	exchange string
	sink     *pawlrabbitmq.Sink
}

func newOutlet(t *testing.T, server *rabbit, args amqp.Table, cfg pawlrabbitmq.SinkConfig) *outlet {
	t.Helper()
	o := &outlet{fixture: queueOn(t, server, args)}
	o.exchange = "x-" + o.queue
	o.must(o.ch.ExchangeDeclare(o.exchange, "topic", true, false, false, false, nil))
	o.must(o.ch.QueueBind(o.queue, "order.*", o.exchange, false, nil))
	o.sink = o.openSink(server.Addr(), cfg)
	return o
}

func (o *outlet) openSink(addr string, cfg pawlrabbitmq.SinkConfig) *pawlrabbitmq.Sink {
	o.Helper()
	s, err := pawlrabbitmq.OpenSink(context.Background(), dialer(addr), o.exchange, cfg)
	o.must(err)
	o.Cleanup(func() { _ = s.Close() })
	return s
}

// event returns a message of type order.placed, as a relay makes it.
func event(id string) pawl.Message {
	return pawl.Message{ID: id, Type: "order.placed", AggregateType: "order", AggregateID: "7", Group: "order/7", Time: time.Now(), Payload: []byte("body of " + id),
		Headers: map[string]string{"ce-id": id, "ce-source": "/shop", "ce-specversion": "1.0", "ce-type": "order.placed", "content-type": "application/json",
			pawl.HeaderEventID: id, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
}

func typed(id, kind string) pawl.Message {
	m := event(id)
	m.Type = kind
	return m
}

func events(ids ...string) (ms []pawl.Message) {
	for _, id := range ids {
		ms = append(ms, event(id))
	}
	return ms
}

// ids returns the ids of all messages in the queue, in order.
func (o *outlet) ids() (all []string) {
	o.Helper()
	eventually(o, "the queue has told its length", func() bool { return o.waiting() >= 0 })
	for {
		d, ok, err := o.ch.Get(o.queue, true)
		o.must(err)
		if !ok {
			return all
		}
		all = append(all, d.MessageId)
	}
}

// An event arrives octet for octet, with CloudEvents headers of the AMQP binding.
func TestSink_Carries(t *testing.T) {
	t.Parallel()
	o := newOutlet(t, sharedServer(t), quorum(), pawlrabbitmq.SinkConfig{})
	m := event("event-1")
	m.Payload = []byte{0xff, 0, '{'}
	if errs := o.sink.Publish(t.Context(), []pawl.Message{m}); errs != nil {
		t.Fatal(errs)
	}
	source, _ := o.open(pawlrabbitmq.Config{})
	d := o.getFrom(source, 1)[0]
	if d.Key != "event-1" || d.MessageID != "event-1" || !bytes.Equal(d.Payload, m.Payload) || !d.ProducedAt.Equal(m.Time.Truncate(time.Second)) {
		t.Errorf("received %+v", d)
	}
	for name, want := range map[string]string{"cloudEvents_id": "event-1", "cloudEvents_source": "/shop", "cloudEvents_type": "order.placed", "content-type": "application/json",
		"traceparent": m.Headers["traceparent"], pawl.HeaderEventID: "event-1", pawlrabbitmq.GroupHeader: "order/7", "Idempotency-Key": "event-1",
		pawlrabbitmq.TypeAttribute: "order.placed", pawlrabbitmq.RoutingKeyAttribute: "order.placed", pawlrabbitmq.ExchangeAttribute: o.exchange} {
		if d.Attributes[name] != want {
			t.Errorf("%s is %q, want %q", name, d.Attributes[name], want)
		}
	}
	if _, there := d.Attributes["ce-id"]; there {
		t.Error("ce-id arrived beside cloudEvents_id")
	}
}

// A message without a bound queue is an error of that event only, although RabbitMQ confirms it.
func TestSink_UnroutableIsAFailure(t *testing.T) {
	t.Parallel()
	o := newOutlet(t, sharedServer(t), quorum(), pawlrabbitmq.SinkConfig{})
	errs := o.sink.Publish(t.Context(), []pawl.Message{event("1"), typed("2", "invoice.sent"), event("3"), typed("4", "nothing")})
	for i, failed := range []bool{false, true, false, true} {
		if (errs[i] != nil) != failed {
			t.Errorf("message %d: %v", i+1, errs[i])
		}
	}
	if err := errs[1]; pawl.IsFinal(err) || pawl.IsSinkDown(err) || !strings.Contains(err.Error(), "NO_ROUTE") || !strings.Contains(err.Error(), `"invoice.sent" (bind a queue`) {
		t.Errorf("got %v", err)
	}
	if got := o.ids(); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("published %v", got)
	}
}

// A batch stops at the first message that RabbitMQ does not accept, and publishes nothing after it.
func TestSink_BatchIsAPrefix(t *testing.T) {
	t.Parallel()
	o := newOutlet(t, sharedServer(t), quorum(), pawlrabbitmq.SinkConfig{})
	ms := []pawl.Message{event("1"), event("2"), typed("3", "nothing"), event("4")}
	accepted, err := o.sink.PublishBatch(t.Context(), ms)
	if accepted != 2 || err == nil || pawl.IsSinkDown(err) {
		t.Errorf("accepted %d, %v", accepted, err)
	}
	o.must(o.ch.QueueBind(o.queue, "nothing", o.exchange, false, nil))
	if accepted, err = o.sink.PublishBatch(t.Context(), ms[2:]); accepted != 2 || err != nil {
		t.Errorf("accepted %d, %v", accepted, err)
	}
	if got := o.ids(); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		t.Errorf("published %v", got)
	}
}

// A full queue with reject-publish is the sink's failure. A batch keeps its order through it.
func TestSink_FullQueueIsDown(t *testing.T) {
	t.Parallel()
	o := newOutlet(t, sharedServer(t), amqp.Table{"x-max-length": 2, "x-overflow": "reject-publish"}, pawlrabbitmq.SinkConfig{})
	ms := events("1", "2", "3", "4", "5", "6")
	accepted, err := o.sink.PublishBatch(t.Context(), ms)
	if !pawl.IsSinkDown(err) || accepted == len(ms) {
		t.Fatalf("accepted %d, %v", accepted, err)
	}
	got := o.ids()
	for len(got) < len(ms) {
		more, err := o.sink.PublishBatch(t.Context(), ms[accepted:])
		if err != nil && !pawl.IsSinkDown(err) {
			t.Fatal(err)
		}
		accepted += more
		got = append(got, o.ids()...)
	}
	if !slices.Equal(got, []string{"1", "2", "3", "4", "5", "6"}) {
		t.Errorf("published %v", got)
	}
}

// A message that RabbitMQ cannot carry gets a final error, and the others are published.
func TestSink_RefusesWhatCannotBeCarried(t *testing.T) {
	t.Parallel()
	o := newOutlet(t, sharedServer(t), quorum(), pawlrabbitmq.SinkConfig{MaxSize: 1 << 20})
	with := func(change func(m *pawl.Message)) pawl.Message {
		m := event("odd")
		change(&m)
		return m
	}
	all := map[string]pawl.Message{
		"headers have":     with(func(m *pawl.Message) { m.Headers["big"] = strings.Repeat("x", 128<<10) }),
		"payload has":      with(func(m *pawl.Message) { m.Payload = make([]byte, 1<<20+1) }),
		"routing key has":  with(func(m *pawl.Message) { m.Type = strings.Repeat("x", 256) }),
		"name of the head": with(func(m *pawl.Message) { m.Headers[strings.Repeat("x", 256)] = "y" }),
		"Idempotency-Key":  with(func(m *pawl.Message) { m.Headers["Idempotency-Key"] = "another" }),
	}
	for want, m := range all {
		errs := o.sink.Publish(t.Context(), []pawl.Message{event("1"), m})
		if errs == nil || errs[0] != nil || !pawl.IsFinal(errs[1]) || !strings.Contains(fmt.Sprint(errs[1]), want) {
			t.Errorf("%s: got %v", want, errs)
		}
		if err := o.sink.Carries(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Carries says %v", want, err)
		}
	}
	// The limit is RabbitMQ's: a message just below it arrives.
	large := with(func(m *pawl.Message) { m.Headers["big"] = strings.Repeat("x", 126<<10) })
	if errs := o.sink.Publish(t.Context(), []pawl.Message{large}); errs != nil {
		t.Error(errs)
	}
	if got := len(o.ids()); got != len(all)+1 {
		t.Errorf("%d messages arrived, want %d", got, len(all)+1)
	}
}

// A message that only the broker finds too large closes the channel. If it was alone, it is
// charged; otherwise the culprit is unknown. The sink continues.
func TestSink_BrokerFindsItTooLarge(t *testing.T) {
	t.Parallel()
	o := newOutlet(t, sharedServer(t), quorum(), pawlrabbitmq.SinkConfig{})
	large := event("large")
	large.Payload = make([]byte, mostOctets+1)
	errs := o.sink.Publish(t.Context(), []pawl.Message{large, event("2")})
	if errs == nil || !pawl.IsSinkDown(errs[0]) {
		t.Errorf("with another one: %v", errs)
	}
	errs = o.sink.Publish(t.Context(), []pawl.Message{large})
	if errs == nil || pawl.IsSinkDown(errs[0]) || !strings.Contains(errs[0].Error(), "message size") {
		t.Errorf("alone: %v", errs)
	}
	if errs := o.sink.Publish(t.Context(), events("3")); errs != nil {
		t.Errorf("afterwards: %v", errs)
	}
}

// A silent network is the sink's failure once the context ends, until the network is back.
func TestSink_HalfOpenConnection(t *testing.T) {
	t.Parallel()
	o := newOutlet(t, sharedServer(t), quorum(), pawlrabbitmq.SinkConfig{})
	proxy, addr, err := wireproxy.Listen()
	o.must(err)
	t.Cleanup(proxy.Close)
	proxy.Redirect(o.server.Addr())
	sink := o.openSink(addr, pawlrabbitmq.SinkConfig{})
	thaw := proxy.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	errs := sink.Publish(ctx, events("1", "2"))
	if took := time.Since(start); took > 2500*time.Millisecond {
		t.Errorf("Publish returned %v after its context", took-time.Second)
	}
	for _, err := range errs {
		if !pawl.IsSinkDown(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	thaw()
	eventually(t, "it publishes again", func() bool { return sink.Publish(t.Context(), events("1", "2")) == nil })
}

// A broker short of memory blocks publishers. The sink reports that at once and does not hang.
func TestSink_BlockedConnection(t *testing.T) {
	t.Parallel()
	server, err := startRabbit(t.Context(), map[string]string{"vm_memory_high_watermark.absolute": "1MB"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	o := &outlet{fixture: &fixture{TB: t, server: server}}
	o.connect()
	o.exchange = "amq.topic"
	sink := o.openSink(server.Addr(), pawlrabbitmq.SinkConfig{})
	eventually(t, "the sink says that it is blocked", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		errs := sink.Publish(ctx, events("1"))
		return errs != nil && pawl.IsSinkDown(errs[0]) && strings.Contains(errs[0].Error(), "blocks the connection")
	})
	start := time.Now()
	if errs := sink.Publish(t.Context(), events("2")); errs == nil || time.Since(start) > 2*time.Second {
		t.Errorf("after %v: %v", time.Since(start), errs)
	}
}

// OpenSink names a missing exchange, and a closed sink publishes nothing.
func TestSink_OpenAndClose(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	_, err := pawlrabbitmq.OpenSink(t.Context(), dialer(server.Addr()), "nowhere", pawlrabbitmq.SinkConfig{})
	if err == nil || !strings.Contains(err.Error(), `the exchange "nowhere" does not exist (declare it`) {
		t.Errorf("got %v", err)
	}
	both := pawlrabbitmq.SinkConfig{RoutingKey: "q", RoutingKeyOf: func(m pawl.Message) string { return m.Type }}
	if _, err := pawlrabbitmq.OpenSink(t.Context(), dialer(server.Addr()), "", both); err == nil || !strings.Contains(err.Error(), "set one of RoutingKey") {
		t.Errorf("got %v", err)
	}
	o := newOutlet(t, server, quorum(), pawlrabbitmq.SinkConfig{})
	o.must(o.sink.Close())
	if errs := o.sink.Publish(t.Context(), events("1")); errs == nil || !strings.Contains(errs[0].Error(), "closed") {
		t.Errorf("got %v", errs)
	}
}

// The default exchange routes to the named queue.
func TestSink_DefaultExchange(t *testing.T) {
	t.Parallel()
	o := &outlet{fixture: queueOn(t, sharedServer(t), quorum())}
	sink := o.openSink(o.server.Addr(), pawlrabbitmq.SinkConfig{RoutingKey: o.queue})
	if errs := sink.Publish(t.Context(), events("1", "2", "3")); errs != nil {
		t.Fatal(errs)
	}
	got := o.ids()
	slices.Sort(got)
	if !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("published %v", got)
	}
	if system, destination := sink.Broker(); system != "rabbitmq" || destination != "" {
		t.Errorf("it publishes to %s %q", system, destination)
	}
}
