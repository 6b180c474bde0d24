package pawlsqs_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// strange are texts at the edges of what SQS takes.
var strange = []string{"a", "Z9", " ", "%", `"`, "ü", "日本", "\u0085", "\ufffd", "\ufffe", "\uffff", "😀", ".", "..", "AWS.", "amazon.x", "_", "-", "\t",
	strings.Repeat("n", 90), "\u2028"}

// stranger adds texts that Append refuses.
var stranger = append([]string{"\r", "\n", "\x00", "\x01", "\x1f", "\xff", "\xed\xa0\x80", "", "\x7f", strings.Repeat("x", 257)}, strange...)

func join(r *rand.Rand, parts []string) string {
	var b strings.Builder
	for range 1 + r.IntN(3) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// name is usually a name that SQS takes.
func name(r *rand.Rand, parts []string) string {
	if r.IntN(4) > 0 {
		return fmt.Sprint("own-", r.IntN(5))
	}
	text := strings.ReplaceAll(join(r, parts), "\t", "t")
	if len(parts) == len(strange) {
		text = strings.ToValidUTF8(text[:min(len(text), 200)], "v") // as Append requires
	}
	return text
}

func payload(r *rand.Rand) []byte {
	switch r.IntN(4) {
	case 0:
		return []byte(join(r, strange))
	case 1:
		return []byte("plain text, €\r\n\t" + fmt.Sprint(r.Int()))
	}
	all := make([]byte, r.IntN(30))
	for i := range all {
		all[i] = byte(r.IntN(256))
	}
	return all
}

// drain receives until no message comes, and returns the deliveries by key. A repeated key fails
// the test.
func (f *fixture) drain() map[string]pawl.Delivery {
	f.Helper()
	all := map[string]pawl.Delivery{}
	for {
		ds := f.receive()
		if len(ds) == 0 {
			return all
		}
		for _, d := range ds {
			if _, twice := all[d.Key]; twice {
				f.Errorf("%q came twice", d.Key)
			}
			all[d.Key] = d
		}
		f.ack(ds...)
	}
}

// Random payloads, ids and headers go from Append through the relay and a queue to a source. Each
// event arrives octet for octet, or becomes a dead letter at its first attempt and is not sent.
func TestSink_ExactlyOrRefused(t *testing.T) {
	for _, base64 := range []bool{false, true} {
		t.Run(fmt.Sprintf("base64 %v", base64), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			p := newPipeline(t, sqstest.Faults{})
			appended := map[string]outbox.Event{}
			p.must(pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
				for i := range 300 {
					e := outbox.Event{Type: "T", Scope: "s", Key: fmt.Sprint(i, " ", name(r, strange)), Payload: payload(r), Headers: map[string]string{}}
					if r.IntN(3) == 0 {
						e.AggregateType, e.AggregateID = "order", fmt.Sprint(i, name(r, strange))
					}
					for range r.IntN(4) {
						e.Headers[name(r, strange)] = join(r, strange)
					}
					if r.IntN(20) == 0 {
						e.Headers["Idempotency-Key"] = "another"
					}
					as, err := outbox.Append(t.Context(), tx, e)
					if pawl.CodeOf(err) == pawl.CodeArgumentInvalid {
						return fmt.Errorf("%+v: %w", e, err)
					}
					if err != nil {
						return err
					}
					appended[as[0].EventID] = e
				}
				return nil
			}))
			p.relay(p.sink(pawlsqs.SinkConfig{Base64: base64}))
			p.until("all are decided", func() bool {
				return p.count("select count(*) from pawl_v1.outbox_pending where status <> 'dead_letter'") == 0
			})
			if n := p.count("select count(*) from pawl_v1.outbox_pending where attempt_count <> 1"); n != 0 {
				t.Errorf("%d events were tried more than once", n)
			}
			arrived, dead := p.drain(), p.count("select count(*) from pawl_v1.outbox_pending")
			if sent := int(p.server.Stats("q").Sent); sent != len(arrived) || len(arrived)+dead != len(appended) || dead == 0 || len(arrived) < 20 {
				t.Errorf("%d sent, %d arrived, %d are dead letters, of %d", sent, len(arrived), dead, len(appended))
			}
			for id, d := range arrived {
				e := appended[id]
				wantBody(t, d, e.Payload, e.Headers)
			}
			t.Logf("%d arrived, %d were refused", len(arrived), dead)
		})
	}
}

func wantBody(t *testing.T, d pawl.Delivery, body []byte, headers map[string]string) {
	t.Helper()
	if !bytes.Equal(d.Payload, body) {
		t.Errorf("%q: the body is %q, want %q", d.Key, d.Payload, body)
	}
	for name, value := range headers {
		if d.Attributes[name] != value {
			t.Errorf("%q: %q is %q, want %q", d.Key, name, d.Attributes[name], value)
		}
	}
	if _, there := d.Attributes[pawlsqs.EncodingAttribute]; there {
		t.Errorf("%q: %s reached the handler", d.Key, pawlsqs.EncodingAttribute)
	}
}

// relay publishes until the test ends.
func (p *pipeline) relay(sink pawl.Sink) {
	p.Helper()
	r, err := outbox.NewRelay(p.pool, outbox.Config{Sink: sink, Poll: 20 * time.Millisecond, Presence: job.Presence{Off: true}})
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	p.Cleanup(func() {
		cancel()
		p.must(<-done)
	})
}

// A Sink and a Sender refuse by themselves, before they send, messages that a relay never passes
// on.
func TestSinkAndSender_ExactlyOrRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		for _, queue := range []string{"q", fifoQueue} {
			server := sqstest.New(sqstest.Options{})
			f := openQueue(t, server, newClient(server, "http://sqs.test"), queue, pawlsqs.Config{})
			sinks := map[bool]*pawlsqs.Sink{}
			for _, base64 := range []bool{false, true} {
				var err error
				sinks[base64], err = pawlsqs.OpenSink(t.Context(), f.client, queue, pawlsqs.SinkConfig{Base64: base64})
				f.must(err)
			}
			sender, err := pawlsqs.OpenSender(t.Context(), f.client, queue, "")
			f.must(err)
			sent, refused := map[string][]byte{}, 0
			headers := map[string]map[string]string{}
			for i := range 400 {
				var sink *pawlsqs.Sink
				sink, sender.Base64 = sinks[r.IntN(2) == 0], r.IntN(2) == 0
				key, body, own := fmt.Sprint(i, name(r, stranger)), payload(r), map[string]string{}
				for range r.IntN(3) {
					own[name(r, stranger)] = join(r, stranger)
				}
				var err error
				if i%2 == 0 {
					m := pawl.Message{ID: key, Group: fmt.Sprint("g", i), Payload: body, Headers: maps.Clone(own)}
					if err = sink.Publish(t.Context(), []pawl.Message{m})[0]; (err == nil) != (sink.Carries(m) == nil) || err != nil && !pawl.IsFinal(err) {
						t.Errorf("Publish: %v, Carries: %v", err, sink.Carries(m))
					}
				} else {
					m := pawlsqs.Message{Key: key, Payload: body, Attributes: maps.Clone(own), Group: fmt.Sprint("g", i)}
					if err = sender.Send(t.Context(), m); err != nil && pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
						t.Errorf("Send: %v", err)
					}
				}
				if err != nil {
					refused++
				} else {
					sent[key], headers[key] = body, own
				}
			}
			arrived := f.drain()
			if len(arrived) != len(sent) || refused == 0 || len(sent) == 0 || int(server.Stats(queue).Sent) != len(sent) {
				t.Errorf("%d sent, %d arrived, %d refused; %+v", len(sent), len(arrived), refused, server.Stats(queue))
			}
			for key, body := range sent {
				wantBody(t, arrived[key], body, headers[key])
			}
			t.Logf("%s: %d arrived, %d refused", queue, len(arrived), refused)
		}
	})
}

// falseSum is an endpoint whose response to SendMessageBatch has a wrong checksum for one body.
type falseSum struct {
	*sqstest.Server
	body string
}

func (c falseSum) Do(r *http.Request) (*http.Response, error) {
	response, err := c.Server.Do(r)
	if err != nil || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".SendMessageBatch") {
		return response, err
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte(sumOf(c.body)), []byte(sumOf("another body")))
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return response, nil
}

// A wrong checksum fails its own message. It is no outage, and the other messages of the batch stay
// accepted.
func TestSink_ChecksumFailsOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := sqstest.New(sqstest.Options{})
		f := open(t, server, newClient(falseSum{server, "bad"}, "http://sqs.test"), pawlsqs.Config{})
		errs := f.sink(pawlsqs.SinkConfig{}).Publish(t.Context(), []pawl.Message{message("e-1", "good"), message("e-2", "bad"), message("e-3", "good")})
		if errs[0] != nil || errs[1] == nil || errs[2] != nil || pawl.IsSinkDown(errs[1]) || pawl.IsFinal(errs[1]) {
			t.Errorf("Publish: %v", errs)
		}
		err := f.sender().Send(t.Context(), pawlsqs.Message{Key: "k-1", Payload: []byte("good")}, pawlsqs.Message{Key: "k-2", Payload: []byte("bad")})
		var failed *pawlsqs.SendError
		if !errors.As(err, &failed) || len(failed.Unsent) != 1 || failed.Unsent[0] != 1 {
			t.Errorf("Send: %v", err)
		}
	})
}

// A body is decoded only if it is valid for its encoding attribute. This also holds for other
// producers, inside an envelope, and in Lambda.
func TestReceive_DecodesBase64(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{Unwrap: pawlsqs.UnwrapSNS})
		for body, want := range map[string]string{"AP8=": "\x00\xff", "no base64": "no base64", "": ""} {
			if body == "" {
				envelope, _ := json.Marshal(map[string]any{"Type": "Notification", "TopicArn": "t", "MessageId": "m", "Message": "AP8=",
					"MessageAttributes": map[string]any{pawlsqs.EncodingAttribute: map[string]string{"Type": "String", "Value": "base64"}}})
				body, want = string(envelope), "\x00\xff"
			}
			in := f.plain(body)
			in.MessageAttributes = map[string]types.MessageAttributeValue{
				pawlsqs.EncodingAttribute: {DataType: aws.String("String"), StringValue: aws.String("base64")}}
			if strings.HasPrefix(body, "{") {
				in.MessageAttributes = nil
			}
			_, err := f.client.SendMessage(t.Context(), in)
			f.must(err)
			d := f.one()
			if _, left := d.Attributes[pawlsqs.EncodingAttribute]; string(d.Payload) != want || left != (body == want) {
				t.Errorf("%q arrived as %q with %v", body, d.Payload, d.Attributes)
			}
			f.ack(d)
		}
	})
	batch, err := pawlsqs.OpenLambda([]byte(`{"Records": [{"messageId": "1", "eventSource": "aws:sqs", "body": "AP8=",
		"messageAttributes": {"Pawl-Encoding": {"dataType": "String", "stringValue": "base64"}}}]}`), pawlsqs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ds, err := batch.Receive(t.Context(), 10)
	if err != nil || string(ds[0].Payload) != "\x00\xff" {
		t.Errorf("Lambda: %q, %v", ds, err)
	}
}

// A refusal of a whole call is charged to its message if there is only one. With several messages
// it is charged to none.
func TestSink_RefusalOfOneMessageIsCharged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refused := &sqstest.Error{Shape: "InvalidMessageContents", Message: "no"}
		f := setup(t, sqstest.Faults{Fail: func(c sqstest.Call) *sqstest.Error {
			if c.Op == "SendMessageBatch" {
				return refused
			}
			return nil
		}}, pawlsqs.Config{})
		errs := f.sink(pawlsqs.SinkConfig{}).Publish(t.Context(), []pawl.Message{message("e-1", "b")})
		if pawl.IsSinkDown(errs[0]) || errs[0] == nil {
			t.Errorf("alone: %v", errs)
		}
		for _, err := range f.sink(pawlsqs.SinkConfig{}).Publish(t.Context(), []pawl.Message{message("e-1", "b"), message("e-2", "b")}) {
			if !pawl.IsSinkDown(err) {
				t.Errorf("of two: %v", err)
			}
		}
	})
}

var _ awssqs.HTTPClient = falseSum{}

func sumOf(body string) string { return fmt.Sprintf("%x", md5.Sum([]byte(body))) }
