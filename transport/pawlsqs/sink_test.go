package pawlsqs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

func (f *fixture) sink(cfg pawlsqs.SinkConfig) *pawlsqs.Sink {
	f.Helper()
	sink, err := pawlsqs.OpenSink(f.Context(), f.client, "q", cfg)
	f.must(err)
	return sink
}

// message is an event as a relay passes it.
func message(id, payload string) pawl.Message {
	return pawl.Message{ID: id, Type: "T", Group: "5:order2:17", Payload: []byte(payload), Headers: map[string]string{
		"ce-id": id, "ce-source": "/s", "ce-specversion": "1.0", "ce-type": "T", "ce-time": "2026-05-04T03:02:01Z", "ce-subject": "order/17",
		"content-type": "text/plain", "traceparent": "00-1-2-03", "tracestate": "a=b", pawl.HeaderEventID: id}}
}

// Headers that a receiver needs come first, and optional ones fill the room. A source finds the id
// as its key.
func TestSink_TheReceiverFindsTheID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		m := message("e-1", "b")
		m.Headers["tenant"] = "t-9"
		if errs := f.sink(pawlsqs.SinkConfig{}).Publish(t.Context(), []pawl.Message{m}); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		d := f.one()
		if d.Key != "e-1" || string(d.Payload) != "b" || len(d.Attributes) > 10 {
			t.Fatalf("got %+v", d)
		}
		for name, want := range map[string]string{pawl.HeaderEventID: "e-1", "ce-id": "e-1", "ce-type": "T", "ce-source": "/s", "ce-specversion": "1.0",
			"traceparent": "00-1-2-03", "tenant": "t-9", "ce-subject": "order/17", "ce-time": "2026-05-04T03:02:01Z", "content-type": "", "tracestate": ""} {
			if got := d.Attributes[name]; got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		f.must(f.source.Ack(t.Context(), committed(d)...))
	})
}

// An event that SQS can never carry is final and does not affect the others. Batches hold at most
// ten messages and as many large ones as fit.
func TestSink_EachHasItsOwnResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		ms := []pawl.Message{message("empty", ""), message("big", strings.Repeat("x", pawlsqs.MaxSize))}
		crowded := message("crowded", "b")
		for n := range 4 {
			crowded.Headers["own-"+strconv.Itoa(n)] = "v"
		}
		ms = append(ms, crowded)
		for n := range 25 {
			ms = append(ms, message(fmt.Sprint("e-", n), "b"))
		}
		for n := range 3 {
			ms = append(ms, message(fmt.Sprint("large-", n), strings.Repeat("x", 400<<10)))
		}
		for i, err := range f.sink(pawlsqs.SinkConfig{}).Publish(t.Context(), ms) {
			if i < 3 != pawl.IsFinal(err) || i >= 3 && err != nil {
				t.Errorf("%s: %v", ms[i].ID, err)
			}
		}
		if got := f.server.Stats("q"); got.Sent != 28 {
			t.Errorf("%d sent, want 28", got.Sent)
		}
	})
}

// Failures of SQS or of the connection count against the sink, not against the event.
func TestSink_OutageIsChargedToTheSink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		sink := f.sink(pawlsqs.SinkConfig{})
		f.server.SetFaults(sqstest.Chaos(1, sqstest.Rates{Error: 1}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range sink.Publish(ctx, []pawl.Message{message("1", "b"), message("2", "b")}) {
			if !pawl.IsSinkDown(err) || pawl.IsFinal(err) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// In a FIFO queue the aggregate is the group and the id is the deduplication id, hashed if SQS
// would refuse it. An event published twice arrives once, in order.
func TestSink_FIFO(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setupFIFO(t, sqstest.Faults{}, pawlsqs.Config{})
		sink, err := pawlsqs.OpenSink(t.Context(), f.client, fifoQueue, pawlsqs.SinkConfig{})
		f.must(err)
		alone := message("ünïcode", "b")
		alone.Group = ""
		long := message(strings.Repeat("e", 200), "b")
		for _, ms := range [][]pawl.Message{{message("e-1", "b"), alone}, {long}, {message("e-1", "b"), alone}, {long}} {
			f.must(errors.Join(sink.Publish(t.Context(), ms)...))
		}
		if got := f.server.Stats(fifoQueue).Sent; got != 3 {
			t.Errorf("%d messages, want 3", got)
		}
		var keys []string
		for range 3 {
			for _, d := range f.receive() {
				if keys = append(keys, d.Key); d.Key != alone.ID && d.OrderingKey != "5:order2:17" {
					t.Errorf("%s has the ordering key %q", d.Key, d.OrderingKey)
				}
				f.ack(d)
			}
		}
		slices.Sort(keys)
		if !slices.Equal(keys, []string{"e-1", long.ID, alone.ID}) {
			t.Errorf("received %q", keys)
		}
	})
}

// A mute responds to a batch without any result.
type mute struct{ pawlsqs.SendAPI }

func (mute) SendMessageBatch(context.Context, *awssqs.SendMessageBatchInput, ...func(*awssqs.Options)) (*awssqs.SendMessageBatchOutput, error) {
	return &awssqs.SendMessageBatchOutput{}, nil
}

// An entry without a result is not accepted.
func TestSink_UnmentionedIsNotAccepted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		sink, err := pawlsqs.OpenSink(t.Context(), mute{f.client}, "q", pawlsqs.SinkConfig{})
		f.must(err)
		for _, err := range sink.Publish(t.Context(), []pawl.Message{message("1", "b"), message("2", "b")}) {
			if !pawl.IsSinkDown(err) {
				t.Errorf("unanswered: %v", err)
			}
		}
	})
}
