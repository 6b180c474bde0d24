package pawlnats_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

// A delivery holds the message's position, delivery count, timestamps, attributes and payload.
func TestReceive_DeliveryFields(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	m := nats.NewMsg(f.stream + ".placed")
	m.Data = []byte{0, 255}
	m.Header = nats.Header{"Idempotency-Key": {"first", "last"}, "photo": {"\xff\x00"}, "nul": {"a\x00b"}, "Produced-At": {"2026-01-02T03:04:05Z"}, "nats.subject": {"mine"}}
	ack := f.publish(m)
	d := f.get(1)[0]
	if d.Key != "last" || d.Log != f.stream || d.Offset != int64(ack.Sequence) || d.Receives != 1 || d.OrderingKey != "" || string(d.Payload) != "\x00\xff" {
		t.Errorf("%+v", d)
	}
	if !strings.HasPrefix(d.MessageID, fmt.Sprintf("%s/%d@", f.stream, ack.Sequence)) || len(d.MessageID) > pawl.MaxKey {
		t.Errorf("message id %q", d.MessageID)
	}
	if time.Since(d.SentAt).Abs() > time.Minute || !d.ProducedAt.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("sent %v, produced %v", d.SentAt, d.ProducedAt)
	}
	want := map[string]string{"photo;base64": base64.StdEncoding.EncodeToString([]byte{255, 0}), "nul;base64": base64.StdEncoding.EncodeToString([]byte("a\x00b")),
		"Idempotency-Key": "last", "nats.subject": f.stream + ".placed", "Produced-At": "2026-01-02T03:04:05Z"}
	for name, value := range want {
		if d.Attributes[name] != value {
			t.Errorf("%s is %q, want %q", name, d.Attributes[name], value)
		}
	}
	if len(d.Attributes) != len(want) {
		t.Errorf("attributes %v", d.Attributes)
	}
	f.ack(d)
}

// A message without a body that has a header Status is not taken for a status of the server.
func TestReceive_StatusIsAHeader(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	for _, status := range []string{"404", "408", "409", "503"} {
		m := nats.NewMsg(f.stream + ".placed")
		m.Header.Set("Idempotency-Key", status)
		m.Header.Set("Status", status)
		f.publish(m)
	}
	ds := f.get(4)
	if got := keys(ds); !slices.Equal(got, []string{"404", "408", "409", "503"}) {
		t.Errorf("received %v", got)
	}
	f.ack(ds...)
}

// beyondAckWait runs a test that must outlast AckWait. If the machine stalled so long that the
// server redelivered held messages, it runs the test again with a longer AckWait.
func beyondAckWait(t *testing.T, play func(wait time.Duration) (lost bool)) {
	t.Helper()
	for wait := time.Second; play(wait); wait *= 4 {
		if wait > 16*time.Second {
			t.Fatalf("deliveries held for longer than an AckWait of %v came again", wait)
		}
	}
}

// beats waits for n extensions of each held delivery; there are three per AckWait.
func (f *fixture) beats(n int) {
	f.Helper()
	before := f.source.Stats()
	eventually(f, "extended", func() bool {
		s := f.source.Stats()
		return s.Extended-before.Extended >= int64(n*before.Held) || s.LostHandles > 0
	})
}

// A held delivery is extended even if the caller ignores it, and no other process receives it.
func TestHeart_HoldsBeyondAckWait(t *testing.T) {
	t.Parallel()
	beyondAckWait(t, func(wait time.Duration) (lost bool) {
		f := setup(t, options{consumer: jetstream.ConsumerConfig{AckWait: wait}})
		f.send("a", "b")
		held := f.get(2)
		f.beats(6)
		ds, err := f.source.Receive(t.Context(), 10)
		f.must(err)
		f.beats(3)
		if len(ds) > 0 || f.source.Stats().Redelivered > 0 {
			return true
		}
		if s := f.source.Stats(); s.Held != 2 || s.LostHandles != 0 {
			t.Errorf("%+v", s)
		}
		f.ack(held...)
		eventually(t, "the consumer has settled all", func() bool { i := f.info(); return i.NumAckPending == 0 && i.AckFloor.Stream == 2 })
		if s := f.source.Stats(); s.Held != 0 || s.Acked != 2 {
			t.Errorf("%+v", s)
		}
		return false
	})
}

// A broken connection loses no held delivery: the next connection extends and acknowledges it.
func TestReconnect_KeepsWhatIsHeld(t *testing.T) {
	t.Parallel()
	beyondAckWait(t, func(wait time.Duration) (lost bool) {
		f := setup(t, options{consumer: jetstream.ConsumerConfig{AckWait: wait}})
		f.send("a", "b", "c")
		held := f.get(3)
		for range 3 {
			before := f.js.Conn().Stats().Reconnects
			f.must(f.js.Conn().ForceReconnect())
			eventually(t, "reconnected", func() bool { return f.js.Conn().IsConnected() && f.js.Conn().Stats().Reconnects > before })
			f.beats(4)
		}
		f.must(f.source.Release(t.Context(), 0, held[2]))
		f.ack(held[:2]...)
		again := f.get(1)
		f.ack(again...)
		eventually(t, "settled", func() bool { i := f.info(); return i.NumAckPending == 0 && i.NumPending == 0 })
		s := f.source.Stats()
		if s.LostHandles > 0 || s.Received > 4 {
			return true
		}
		if again[0].Key != "c" || again[0].Receives != 2 || s.Received != 4 {
			t.Errorf("received %v, %d times; %+v", keys(again), again[0].Receives, s)
		}
		return false
	})
}

// A server crash may lose acknowledgements. Their messages come again, and no message is lost.
func TestServerKilled_AcknowledgedMayComeAgain(t *testing.T) {
	t.Parallel()
	f := setup(t, options{consumer: jetstream.ConsumerConfig{AckWait: time.Second}})
	const n = 200
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
	}
	f.send(want...)
	held := f.get(n)
	f.ack(held[:n/2]...)
	f.must(f.js.Conn().Flush())
	f.server.Kill() // right after the acknowledgements
	f.must(f.server.Start(context.Background()))
	eventually(t, "the others are acknowledged with their old handles", func() bool { return f.source.Ack(t.Context(), committed(held[n/2:]...)...) == nil })
	eventually(t, "no more messages come", func() bool {
		ds, err := f.source.Receive(t.Context(), 100)
		if err != nil {
			t.Log(err)
		}
		f.ack(ds...)
		return err == nil && len(ds) == 0 && f.info().NumAckPending == 0
	})
	t.Logf("%d of %d messages acknowledged before the kill came again", f.source.Stats().Redelivered, n/2)
	if s := f.source.Stats(); s.Held != 0 || f.info().AckFloor.Stream != n {
		t.Errorf("%+v", s)
	}
}

// A recreated stream counts from 1 again. An old handle must not remove the new message of its
// number.
func TestStreamRecreated_OldHandleRemovesNothing(t *testing.T) {
	t.Parallel()
	for name, makeAnew := range map[string]func(f *fixture, o options){
		"while connected": func(f *fixture, o options) {
			f.must(f.js.DeleteStream(f.Context(), f.stream))
			f.create(o)
		},
		"while the server is away": func(f *fixture, o options) { // as if its disk were lost
			f.server.Kill()
			other := connect // this connection is back before the source's
			f.must(f.server.Start(context.Background()))
			js := other(f, f.server.Addr())
			f.must(js.DeleteStream(f.Context(), f.stream))
			f.create(o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var events []string
			o := options{config: pawlnats.Config{Wait: 200 * time.Millisecond, Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
				if e.Kind == pawl.EventError || e.Kind == pawl.EventHandleLost {
					mu.Lock()
					events = append(events, fmt.Sprint(e.Kind, " ", e.Count, " ", e.Err))
					mu.Unlock()
				}
			}}}}
			f := setup(t, o)
			f.send("old")
			old := f.get(1)
			makeAnew(f, o)
			f.send("new")
			fresh := f.get(1)
			if fresh[0].Key != "new" || fresh[0].Offset != old[0].Offset || fresh[0].MessageID == old[0].MessageID {
				t.Fatalf("received %+v, before %+v", fresh[0], old[0])
			}
			f.ack(old...)
			f.must(f.js.Conn().Flush())
			f.must(f.source.Release(t.Context(), 0, old...))
			if i := f.info(); i.NumAckPending != 1 || i.AckFloor.Stream != 0 {
				t.Errorf("the old handle settled the new message: %+v", i)
			}
			mu.Lock()
			if all := strings.Join(events, "\n"); !strings.Contains(all, "was recreated") || !strings.Contains(all, "handle_lost 1") {
				t.Errorf("events %q", all)
			}
			mu.Unlock()
			f.ack(fresh...)
			eventually(t, "the new handle settles it", func() bool { return f.info().AckFloor.Stream == 1 })
		})
	}
}

// If the consumer is deleted, Receive returns an error that names it, and asks at growing
// intervals. Once the consumer exists again, the source continues by itself.
func TestConsumerGone_ComesBack(t *testing.T) {
	t.Parallel()
	o := options{config: pawlnats.Config{Wait: 200 * time.Millisecond}}
	f := setup(t, o)
	f.must(f.js.DeleteConsumer(t.Context(), f.stream, f.consumer))
	var err error
	eventually(t, "an error", func() bool {
		_, err = f.source.Receive(t.Context(), 1)
		return err != nil && strings.Contains(err.Error(), "does not exist")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := f.source.Receive(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	o.withDefaults()
	_, err = f.js.CreateConsumer(t.Context(), f.stream, o.consumer)
	f.must(err)
	f.send("a")
	f.ack(f.get(1)...)
}

// If the consumer is changed so that it no longer fits, Receive returns an error with a hint.
func TestConsumerChanged_IsRefused(t *testing.T) {
	t.Parallel()
	o := options{config: pawlnats.Config{Wait: 200 * time.Millisecond}}
	o.withDefaults()
	f := setup(t, o)
	k := o.consumer
	k.MaxDeliver = 3
	_, err := f.js.UpdateConsumer(t.Context(), f.stream, k)
	f.must(err)
	before := f.js.Conn().Stats().Reconnects
	f.must(f.js.Conn().ForceReconnect())
	eventually(t, "reconnected", func() bool { return f.js.Conn().IsConnected() && f.js.Conn().Stats().Reconnects > before })
	if _, err := f.source.Receive(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "set max-deliver to -1") {
		t.Error(err)
	}
}

// A hanging server or a silent network is detected, although no connection was closed. Afterwards
// the source continues by itself. A message that was sent into the broken connection comes again
// after AckWait.
func TestSilence_IsNoticed(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"server", "network"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := startServer(t)
			proxy, front, err := wireproxy.Listen()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(proxy.Close)
			proxy.Redirect(server.Addr())
			f := setup(t, options{server: server, via: front, consumer: jetstream.ConsumerConfig{AckWait: crashWait}, config: pawlnats.Config{Wait: 200 * time.Millisecond}})
			silence := func() (end func()) {
				if what == "network" {
					return proxy.Freeze()
				}
				server.Freeze()
				return server.Wake
			}
			f.send("a")
			f.ack(f.get(1)...)
			end := silence()
			eventually(t, "the source reconnects", func() bool {
				_, err := f.source.Receive(t.Context(), 1)
				return err != nil && f.source.Stats().Reconnects > 0
			})
			if err := f.source.Ack(t.Context(), committed(pawl.Delivery{Handle: nil})...); err == nil {
				t.Error("a nil handle was accepted")
			}
			end()
			f.send("b")
			if d := f.get(1); d[0].Key != "b" {
				t.Errorf("received %v", keys(d))
			}
		})
	}
}

// While the connection is broken, Ack acknowledges nothing; its error says that no action is
// needed.
func TestAck_WhileDisconnected(t *testing.T) {
	t.Parallel()
	f := setup(t, options{consumer: jetstream.ConsumerConfig{AckWait: crashWait}, config: pawlnats.Config{Wait: 200 * time.Millisecond}})
	f.send("a")
	ds := f.get(1)
	f.server.Kill()
	eventually(t, "disconnected", func() bool { return !f.js.Conn().IsConnected() })
	err := f.source.Ack(t.Context(), committed(ds...)...)
	if !errors.Is(err, nats.ErrDisconnected) || !strings.Contains(err.Error(), "1 of 1 messages not acknowledged") || !strings.Contains(err.Error(), "absorbed") {
		t.Error(err)
	}
	if s := f.source.Stats(); s.AckFailures != 1 || s.Acked != 0 || s.Held != 0 {
		t.Errorf("%+v", s)
	}
	if _, err := f.source.Receive(t.Context(), 1); !errors.Is(err, nats.ErrDisconnected) {
		t.Error(err)
	}
	f.must(f.server.Start(context.Background()))
	if again := f.get(1); again[0].Key != "a" {
		t.Errorf("received %v", keys(again))
	}
}

// Receipts and deliveries of another source are refused. Valid ones of the same call are accepted.
func TestHandles_OfAnotherSource(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	other := setup(t, options{server: f.server})
	f.send("a", "b")
	other.send("c")
	ds, foreign := f.get(2), other.get(1)
	err := f.source.Ack(t.Context(), committed(ds[0], foreign[0])...)
	if !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "1 of 2 receipts refused") {
		t.Error(err)
	}
	err = f.source.Release(t.Context(), 0, ds[1], foreign[0])
	if !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "1 of 2 deliveries are not of this source") {
		t.Error(err)
	}
	if s := f.source.Stats(); s.Acked != 1 || s.Released != 1 {
		t.Errorf("%+v", s)
	}
	if s := other.source.Stats(); s.Held != 1 {
		t.Errorf("%+v", s)
	}
}

// If a message is delivered again while held, the older handle is lost. Its Release does not
// release the message, and its Ack counts for both.
func TestHandles_DeliveredAgainWhileHeld(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	f.send("a")
	first := f.get(1)
	nak(t, f, first[0]) // without the source's knowledge
	second := f.get(1)
	if second[0].Receives != 2 {
		t.Fatalf("received %d times", second[0].Receives)
	}
	f.must(f.source.Release(t.Context(), 0, first...))
	if ds, err := f.source.Receive(t.Context(), 1); len(ds) > 0 || err != nil {
		t.Errorf("the older handle released the message: %v, %v", keys(ds), err)
	}
	f.ack(first...)
	eventually(t, "settled", func() bool { return f.info().AckFloor.Stream == 1 })
	if s := f.source.Stats(); s.LostHandles != 2 || s.Redelivered != 1 || s.Released != 0 || s.Held != 1 {
		t.Errorf("%+v", s)
	}
	f.ack(second...)
}

// nak releases a message like another process.
func nak(t *testing.T, f *fixture, d pawl.Delivery) {
	t.Helper()
	i := f.info()
	subject := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", f.stream, f.consumer, d.Offset, i.Delivered.Consumer, d.SentAt.UnixNano())
	f.must(f.js.Conn().Publish(subject, []byte("-NAK")))
	f.must(f.js.Conn().Flush())
}

// After Finish, all acknowledgements have arrived, held deliveries are no longer extended, and
// calls fail. The connection stays open.
func TestFinish_FlushesAcknowledgements(t *testing.T) {
	t.Parallel()
	f := setup(t, options{consumer: jetstream.ConsumerConfig{AckWait: time.Second}})
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint(i))
	}
	f.send(want...)
	ds := f.get(100)
	f.ack(ds[:99]...)
	f.must(f.source.Finish(t.Context()))
	if i := f.info(); i.NumAckPending > 1 {
		eventually(t, "the server has read all acknowledgements, and works on them", func() bool { return f.info().NumAckPending <= 1 })
	}
	for what, err := range map[string]error{
		"Ack":     f.source.Ack(t.Context(), committed(ds[99])...),
		"Release": f.source.Release(t.Context(), 0, ds[99]),
	} {
		if err == nil || !strings.Contains(err.Error(), "finished") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := f.source.Receive(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "finished") {
		t.Error(err)
	}
	if !f.js.Conn().IsConnected() || f.source.Stats().Held != 0 {
		t.Errorf("connected %v, %+v", f.js.Conn().IsConnected(), f.source.Stats())
	}
	other, err := pawlnats.Open(t.Context(), f.js, f.stream, f.consumer, pawlnats.Config{Wait: time.Second})
	f.must(err)
	f.source = other
	if again := f.get(1); again[0].Key != ds[99].Key { // no longer extended
		t.Errorf("received %v", keys(again))
	}
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	f.send("a", "b", "c")
	f.get(1)
	b, err := f.source.Backlog(t.Context())
	f.must(err)
	if b != (pawlnats.Backlog{Pending: 2, AckPending: 1}) {
		t.Errorf("%+v", b)
	}
}

// One pull never brings more bytes into memory than its bound, but one message always fits.
func TestReceive_BoundsOctets(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	body := make([]byte, 1<<20-200)
	const n = 40
	for i := range n {
		m := nats.NewMsg(f.stream + ".big")
		m.Header.Set("Idempotency-Key", fmt.Sprint(i))
		m.Data = body
		f.publish(m)
	}
	for got := 0; got < n; {
		ds, err := f.source.Receive(t.Context(), n)
		f.must(err)
		if len(ds) > 16 {
			t.Errorf("%d MiB in one batch", len(ds))
		}
		got += len(ds)
		f.ack(ds...)
	}
}
