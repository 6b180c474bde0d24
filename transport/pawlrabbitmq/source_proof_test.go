//go:build proof

package pawlrabbitmq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// Messages that a stopped source did not start come to the next one in order, once 1 is settled.
func TestSource_StopKeepsTheOrder(t *testing.T) {
	t.Parallel()
	cfg := pawlrabbitmq.Config{OrderingKey: pawlrabbitmq.ByQueue}
	f := setup(t, single(), cfg)
	f.send("1", "2", "3", "4", "5", "6")
	first := f.get(1)
	next, _ := f.open(cfg)
	stop(f.source)
	if ds, err := next.Receive(t.Context(), 10); len(ds) > 0 || err != nil {
		t.Fatalf("while 1 is out the next one received %v, %v", keys(ds), err)
	}
	f.ack(first...)
	for n := 2; n <= 6; {
		for _, d := range f.getFrom(next, 1) { // nothing behind it comes while it is unsettled
			if d.Key != strconv.Itoa(n) {
				t.Fatalf("received %s, want %d", d.Key, n)
			}
			f.must(next.Ack(t.Context(), committed(d)...))
			n++
		}
	}
}

// Without an order, a stopped source returns the rest at once while handlers still run.
func TestSource_StopFreesTheRestAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum(), pawlrabbitmq.Config{})
	f.send("1", "2", "3", "4")
	first := f.get(1)
	next, _ := f.open(pawlrabbitmq.Config{})
	stop(f.source)
	ds := f.getFrom(next, 3)
	got := keys(ds)
	slices.Sort(got)
	if !slices.Equal(got, []string{"2", "3", "4"}) {
		t.Errorf("received %v", got)
	}
	f.ack(first...)
	f.must(next.Ack(t.Context(), committed(ds...)...))
	f.must(f.source.Finish(t.Context()))
	f.must(next.Finish(t.Context()))
	eventually(t, "nothing is left", func() bool { return f.waiting() == 0 })
}

// Receipts in any order and grouping acknowledge exactly their own messages: after a crash the rest
// comes again. A tag acknowledged twice would have ended the channel.
func TestSource_ReceiptsInAnyOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	f := setup(t, quorum(), pawlrabbitmq.Config{})
	const n = 200
	var want []string
	for i := range n {
		f.send(fmt.Sprintf("key-%03d", i))
	}
	ds := f.get(n)
	random.Shuffle(n, func(i, j int) {
		if random.IntN(3) == 0 { // mostly in order, so that one frame covers many
			ds[i], ds[j] = ds[j], ds[i]
		}
	})
	for len(ds) > 20 {
		size := min(1+random.IntN(15), len(ds)-20)
		if random.IntN(10) == 0 {
			f.must(f.source.Release(t.Context(), time.Hour, ds[0])) // stays unsettled in between
			want, ds = append(want, ds[0].Key), ds[1:]
			continue
		}
		f.ack(ds[:size]...)
		ds = ds[size:]
	}
	want = append(want, keys(ds)...)
	if stats := f.source.Stats(); stats.Sessions != 1 || stats.Acked != int64(n-len(want)) {
		t.Errorf("the source says %+v, acknowledged were %d", stats, n-len(want))
	}
	// RabbitMQ has read all acknowledgements, but the queue may lag.
	eventually(t, "the queue holds the rest", func() bool {
		n, err := managedMessages(f.server, f.queue)
		return err == nil && n == len(want)
	})
	f.must(f.source.Finish(t.Context()))
	next, _ := f.open(pawlrabbitmq.Config{})
	got := keys(f.getFrom(next, len(want)))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("came again: %v\nwant %v", got, want)
	}
}

// A second receipt, or one of an earlier Receive, is refused. The channel stays open.
func TestSource_SecondReceiptIsRefused(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum(), pawlrabbitmq.Config{})
	f.send("a", "b")
	a := f.get(1)[0]
	f.must(f.source.Release(t.Context(), 0, a))
	again := f.get(2)
	if err := f.source.Ack(t.Context(), committed(a)...); err == nil {
		t.Error("the receipt of an earlier handout was taken")
	}
	f.ack(again...)
	if err := f.source.Ack(t.Context(), committed(again...)...); err == nil {
		t.Error("receipts were taken twice")
	}
	f.send("c")
	f.ack(f.get(1)...)
	if stats := f.source.Stats(); stats.Sessions != 1 || stats.Acked != 3 {
		t.Errorf("the source says %+v", stats)
	}
}

// Repeated releases do not use up the queue's delivery limit.
func TestSource_ReleaseCountsNoDelivery(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum("x-delivery-limit", 2), pawlrabbitmq.Config{})
	f.send("a")
	for n := 1; n <= 10; n++ {
		d := f.get(1)[0]
		if d.Receives != n {
			t.Fatalf("handout %d is counted as %d", n, d.Receives)
		}
		f.must(f.source.Release(t.Context(), 0, d))
	}
	f.must(f.source.Finish(t.Context()))
	next, _ := f.open(pawlrabbitmq.Config{})
	if d := f.getFrom(next, 1)[0]; d.Key != "a" || d.Receives != 2 {
		t.Errorf("another source received %q for time %d", d.Key, d.Receives)
	}
}

// Heartbeats detect a silent network. A late receipt removes nothing, and the source reconnects.
func TestSource_HalfOpenConnection(t *testing.T) {
	t.Parallel()
	f := queueOn(t, sharedServer(t), quorum())
	proxy, addr, err := wireproxy.Listen()
	f.must(err)
	t.Cleanup(proxy.Close)
	proxy.Redirect(f.server.Addr())
	silent, err := pawlrabbitmq.Open(t.Context(), dialer(addr), f.queue, pawlrabbitmq.Config{Wait: time.Second})
	f.must(err)
	f.send("a", "b")
	held := f.getFrom(silent, 2)
	thaw := proxy.Freeze()
	defer func() { thaw() }()
	other, _ := f.open(pawlrabbitmq.Config{})
	f.wantKeys(f.getFrom(other, 2), "a", "b")
	eventually(t, "the source notices", func() bool {
		_, err := silent.Receive(t.Context(), 1)
		return err != nil
	})
	if silent.StillHeld(held[1]) {
		t.Error("it says that it still holds b")
	}
	f.must(silent.Ack(t.Context(), committed(held[0])...))
	if stats := silent.Stats(); stats.Acked != 0 || stats.LostHandles != 2 {
		t.Errorf("it says %+v", stats)
	}
	thaw()
	thaw = func() {}
	f.must(other.Finish(t.Context()))
	got := keys(f.getFrom(silent, 2))
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("it received %v", got)
	}
	_ = silent.Finish(t.Context())
}

// The source detects a frozen broker, and consumes again once it continues.
func TestSource_FrozenBroker(t *testing.T) {
	t.Parallel()
	f := queueOn(t, startServer(t), quorum())
	f.source, f.knife = f.open(pawlrabbitmq.Config{})
	f.send("a")
	f.get(1)
	f.server.Freeze()
	defer f.server.Wake()
	eventually(t, "the source notices", func() bool {
		_, err := f.source.Receive(t.Context(), 1)
		return err != nil
	})
	f.server.Wake()
	f.wantKeys(f.get(1), "a")
}

// DefaultKey looks in the places that the guide lists, in that order.
func TestKey_Default(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d    amqp.Delivery
		want string
	}{
		{amqp.Delivery{MessageId: "m", Headers: amqp.Table{"Idempotency-Key": "k"}}, "k"},
		{amqp.Delivery{MessageId: "m", Headers: amqp.Table{"Idempotency-Key": int64(17)}}, "17"},
		{amqp.Delivery{MessageId: "m", CorrelationId: "c", Headers: amqp.Table{"cloudEvents_id": "1", "cloudEvents_source": "/s"}}, "m"},
		{amqp.Delivery{Headers: amqp.Table{"cloudEvents_id": "1", "cloudEvents_source": "/s"}}, pawl.Key("/s", "1")},
		{amqp.Delivery{Headers: amqp.Table{"cloudEvents:id": "1", "cloudEvents:source": "/s"}}, pawl.Key("/s", "1")},
		{amqp.Delivery{CorrelationId: "c", DeliveryTag: 7, Body: []byte("{}")}, ""},
	} {
		if got := pawlrabbitmq.DefaultKey().KeyOf(&c.d); got != c.want {
			t.Errorf("%+v has the key %q, want %q", c.d.Headers, got, c.want)
		}
	}
	if got := pawlrabbitmq.KeyJSON("/id").KeyOf(&amqp.Delivery{Body: []byte(`{"id":"order-17"}`)}); got != "order-17" {
		t.Errorf("KeyJSON found %q", got)
	}
	if got := pawlrabbitmq.KeyBody().KeyOf(&amqp.Delivery{Body: []byte("abc")}); got != "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("KeyBody found %q", got)
	}
}

// Headers of every type arrive as text, with the properties.
func TestSource_Attributes(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum(), pawlrabbitmq.Config{})
	at := time.Now().Truncate(time.Second)
	f.publish(amqp.Publishing{ContentType: "application/json", Type: "OrderPlaced", AppId: "shop", CorrelationId: "c-1", Timestamp: at, Body: []byte("{}"),
		Headers: amqp.Table{"n": int64(-3), "yes": true, "octets": []byte{0xff, 0}, "at": at, "price": amqp.Decimal{Scale: 2, Value: -5}, "half": 0.5,
			"none": nil, "list": []any{"a", int32(1)}, "table": amqp.Table{"x": "y"}, "text": "w\u00f6rld"}})
	d := f.get(1)[0]
	for name, want := range map[string]string{"n": "-3", "yes": "true", "octets;base64": "/wA=", "at": at.UTC().Format(time.RFC3339), "price": "-0.05", "half": "0.5",
		"none": "", "list": `["a",1]`, "table": `{"x":"y"}`, "text": "w\u00f6rld", "content-type": "application/json", pawlrabbitmq.TypeAttribute: "OrderPlaced",
		pawlrabbitmq.AppIDAttribute: "shop", pawlrabbitmq.CorrelationIDAttribute: "c-1", pawlrabbitmq.RoutingKeyAttribute: f.queue} {
		if got, there := d.Attributes[name]; got != want || !there {
			t.Errorf("%s is %q (there: %v), want %q", name, got, there, want)
		}
	}
	if !d.ProducedAt.Equal(at) || !d.SentAt.IsZero() {
		t.Errorf("produced at %v, sent at %v", d.ProducedAt, d.SentAt)
	}
	if !strings.HasPrefix(d.MessageID, "sha256:") || d.Key != "" {
		t.Errorf("a message without id and key arrived as %q with the key %q", d.MessageID, d.Key)
	}
}

// Values inside tables and arrays are formatted as outside, also a time that json refuses.
func TestSource_NestedAttributes(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum(), pawlrabbitmq.Config{})
	at, far := time.Date(2026, 3, 29, 2, 30, 0, 0, time.FixedZone("CEST", 2*60*60)), time.Unix(1_790_000_000_000, 0)
	f.publish(amqp.Publishing{Headers: amqp.Table{"far": far, "table": amqp.Table{
		"at": at, "far": far, "price": amqp.Decimal{Scale: 2, Value: -5}, "octets": []byte{0xff, 0}, "no text": "\xff", "half": 0.5, "n": int64(1) << 60,
		"yes": true, "none": nil, "list": []any{at, far, []byte{0xff, 0}, amqp.Table{"at": at}, nil}}}})
	d := f.get(1)[0]
	for name, want := range map[string]string{"far": "1790000000000",
		"table": `{"at":"2026-03-29T00:30:00Z","far":1790000000000,"half":0.5,` +
			`"list":["2026-03-29T00:30:00Z",1790000000000,"/wA=",{"at":"2026-03-29T00:30:00Z"},null],` +
			`"n":1152921504606846976,"no text;base64":"/w==","none":null,"octets;base64":"/wA=","price":-0.05,"yes":true}`} {
		if got := d.Attributes[name]; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// The header x-death of a message that RabbitMQ dead-lettered says when and why.
func TestSource_DeathInAttributes(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum(), pawlrabbitmq.Config{})
	dying := queueOn(t, f.server, amqp.Table{"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f.queue})
	dying.send("a")
	var deaths []struct {
		Reason, Queue string
		Count         int
		Time          time.Time
	}
	text := f.get(1)[0].Attributes["x-death"]
	if err := json.Unmarshal([]byte(text), &deaths); err != nil || len(deaths) != 1 {
		t.Fatalf("x-death is %s: %v", text, err)
	}
	if got := deaths[0]; got.Reason != "expired" || got.Queue != dying.queue || got.Count != 1 || got.Time.IsZero() || got.Time.Location() != time.UTC {
		t.Errorf("x-death is %s", text)
	}
}

func TestSource_Backlog(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum(), pawlrabbitmq.Config{Prefetch: 2})
	f.send("1", "2", "3", "4", "5")
	eventually(t, "five wait", func() bool {
		b, err := f.source.Backlog(context.Background())
		f.must(err)
		return b.Ready == 5 && b.Consumers == 0
	})
	f.get(1)
	eventually(t, "two are prefetched", func() bool {
		b, err := f.source.Backlog(context.Background())
		f.must(err)
		return b.Ready == 3 && b.Consumers == 1
	})
}

// A receipt of a lost connection removes no message, although another now has its delivery tag.
func TestSource_LateReceiptRemovesNothing(t *testing.T) {
	t.Parallel()
	f := setup(t, quorum(), pawlrabbitmq.Config{})
	f.lateReceipt(f.source)
}

// lateReceipt acknowledges deliveries of an ended session, through a source or a mutant.
func (f *fixture) lateReceipt(acks pawl.Source) {
	f.Helper()
	f.send("a1", "a2", "a3", "b1", "b2", "b3")
	ds := f.get(6)
	f.must(acks.Ack(context.Background(), committed(ds[:3]...)...))
	f.knife.cut(false)
	f.send("c1", "c2", "c3")
	eventually(f, "RabbitMQ has taken back what was lost", func() bool { return f.waiting() == 6 })
	f.wantKeys(f.get(6), "b1", "b2", "b3", "c1", "c2", "c3") // with the tags 1 to 6
	f.must(acks.Ack(context.Background(), committed(ds[3:]...)...))
	f.must(f.source.Finish(context.Background()))
	next, _ := f.open(pawlrabbitmq.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	got := map[string]bool{}
	for len(got) < 6 {
		again, err := next.Receive(ctx, 10)
		if err != nil {
			f.Fatalf("came again: %v: %v", got, err)
		}
		for _, d := range again {
			got[d.Key] = true
		}
	}
}
