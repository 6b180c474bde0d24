package pawlsqs_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

func (f *fixture) sender() *pawlsqs.Sender {
	f.Helper()
	sender, err := pawlsqs.OpenSender(f.Context(), f.client, "q", "")
	f.must(err)
	return sender
}

// sendMany sends n messages with different keys and repeats until SQS confirms all.
func (f *fixture) sendMany(n int) {
	f.Helper()
	ms := make([]pawlsqs.Message, n)
	for i := range ms {
		ms[i] = pawlsqs.Message{Key: "key-" + strconv.Itoa(i), Payload: []byte("body")}
	}
	sender := f.sender()
	for range 100 {
		err := sender.Send(f.Context(), ms...)
		if err == nil {
			return
		}
		var failed *pawlsqs.SendError
		if !errors.As(err, &failed) {
			f.Fatal(err)
		}
		var rest []pawlsqs.Message
		for _, i := range failed.Unsent {
			rest = append(rest, ms[i])
		}
		ms = rest
	}
	f.Fatal("not sent after 100 tries")
}

func TestSend_TheReceiverFindsTheKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.must(f.sender().Send(t.Context(), pawlsqs.Message{Key: "order-1", Payload: []byte("b"),
			Attributes: map[string]string{"type": "order.placed"}, Delay: 2500 * time.Millisecond}))
		start := time.Now()
		d := f.one()
		if d.Key != "order-1" || d.Attributes["type"] != "order.placed" || time.Since(start) != 3*time.Second {
			t.Fatalf("got %+v after %v", d, time.Since(start))
		}
		f.must(f.source.Ack(t.Context(), committed(d)...))
	})
}

// A message carries the trace of the sending context, unless it has its own or no room is left.
func TestSend_CarriesTheTrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		trace := pawl.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "vendor=1"}
		other := pawl.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00"}
		ctx := pawl.WithTrace(t.Context(), trace)
		attributes := func(n int) map[string]string {
			all := map[string]string{}
			for i := range n {
				all["a"+strconv.Itoa(i)] = "b"
			}
			return all
		}
		for _, c := range []struct {
			with map[string]string
			want pawl.Trace
		}{
			{nil, trace},
			{attributes(6), trace},
			{attributes(7), pawl.Trace{Parent: trace.Parent}},
			{attributes(8), pawl.Trace{}},
			{map[string]string{"traceparent": other.Parent}, other},
		} {
			had := len(c.with)
			f.must(f.sender().Send(ctx, pawlsqs.Message{Key: "k", Payload: []byte("b"), Attributes: c.with}))
			d := f.one()
			if d.Trace() != c.want || len(c.with) != had {
				t.Errorf("%d attributes: arrived in %v, want %v; the caller's are now %v", had, d.Trace(), c.want, c.with)
			}
			f.must(f.source.Ack(t.Context(), committed(d)...))
		}
	})
}

// Twenty-five messages need three calls. Four of 400 KiB need two, because a batch has the size
// limit of one message.
func TestSend_InBatchesThatFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.sendMany(25)
		big := pawlsqs.Message{Key: "k", Payload: []byte(strings.Repeat("x", 400<<10))}
		f.must(f.sender().Send(t.Context(), big, big, big, big))
		if got := f.server.Stats("q"); got.Sent != 29 {
			t.Fatalf("server %+v", got)
		}
		f.must(f.sender().Send(t.Context()))
	})
}

func TestSend_NamesWhatIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{FailEntry: func(c sqstest.Call, entry int) *sqstest.Error {
			if c.N == 1 && entry == 2 {
				return sqstest.Internal() // once, so the second attempt sends it
			}
			if entry == 1 {
				return &sqstest.Error{Shape: "InvalidMessageContents", Message: "no"}
			}
			return nil
		}}, pawlsqs.Config{})
		good := pawlsqs.Message{Key: "k", Payload: []byte("b")}
		err := f.sender().Send(t.Context(), good, good, good)
		wantAdvice(t, err, "sqs.send", "1 of 3 messages not sent", "InvalidMessageContents")
		var failed *pawlsqs.SendError
		if !errors.As(err, &failed) || !slices.Equal(failed.Unsent, []int{1}) {
			t.Fatalf("got %+v", failed)
		}
		if got := f.server.Stats("q"); got.Sent != 2 {
			t.Fatalf("server %+v", got)
		}
	})
}

func TestSend_Refusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		many := map[string]string{}
		for i := range 9 {
			many[strconv.Itoa(i)] = "v"
		}
		good := pawlsqs.Message{Key: "k", Payload: []byte("b")}
		for _, bad := range []pawlsqs.Message{{Payload: []byte("b")}, {Key: "k", Payload: []byte("b"), Attributes: many}, {Key: "k", Payload: []byte("b"), Delay: 16 * time.Minute},
			{Key: "k"}, {Key: "k", Payload: make([]byte, 1<<20)}, {Key: "k", Payload: []byte("\x01")}, {Key: "k", Payload: []byte("\xff")}, {Key: "\xff", Payload: []byte("b")},
			{Key: "k", Payload: []byte("b"), Attributes: map[string]string{"x y": "v"}}, {Key: "k", Payload: []byte("b"), Attributes: map[string]string{"x": ""}},
			{Key: "k", Payload: []byte("b"), Attributes: map[string]string{"Idempotency-Key": "other"}}, {Key: "k", Payload: []byte("b"), Group: "ü"}} {
			if err := f.sender().Send(t.Context(), good, bad); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
				t.Errorf("got %v", err)
			}
		}
		if got := f.server.Stats("q"); got.Sent != 0 {
			t.Fatalf("sent beside a refused one: %+v", got)
		}
		_, err := pawlsqs.OpenSender(t.Context(), f.client, "none", "")
		wantAdvice(t, err, "sqs.send", "does not exist")
	})
}
