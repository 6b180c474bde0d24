package pawlsqs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// fixture is a source on the queue "q" of its own server, through the real SDK.
type fixture struct {
	*testing.T
	server *sqstest.Server
	client *awssqs.Client
	url    string
	source *pawlsqs.Source
}

// setup needs no socket, so it can run in a synctest bubble with virtual time.
func setup(t *testing.T, faults sqstest.Faults, cfg pawlsqs.Config) *fixture {
	t.Helper()
	server := sqstest.New(sqstest.Options{Faults: faults})
	return open(t, server, newClient(server, "http://sqs.test"), cfg)
}

// overLoopback is setup with real connections and real time.
func overLoopback(t *testing.T, faults sqstest.Faults, cfg pawlsqs.Config) *fixture {
	t.Helper()
	server := sqstest.New(sqstest.Options{Faults: faults})
	l, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return open(t, server, newClient(nil, l.URL), cfg)
}

func open(t *testing.T, server *sqstest.Server, client *awssqs.Client, cfg pawlsqs.Config) *fixture {
	t.Helper()
	return openQueue(t, server, client, "q", cfg)
}

func openQueue(t *testing.T, server *sqstest.Server, client *awssqs.Client, name string, cfg pawlsqs.Config) *fixture {
	t.Helper()
	url := createQueue(t, client, name)
	source, err := pawlsqs.Open(t.Context(), client, name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, server: server, client: client, url: url, source: source}
}

func newClient(h aws.HTTPClient, endpoint string) *awssqs.Client {
	return awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint, HTTPClient: h,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", "")})
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// send sends one message with the key.
func (f *fixture) send(key string) {
	f.Helper()
	f.must(f.trySend(key))
}

func (f *fixture) trySend(key string) error {
	_, err := f.client.SendMessage(f.Context(), &awssqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("body of " + key),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"Idempotency-Key": {DataType: aws.String("String"), StringValue: &key}}})
	return err
}

// receive polls once.
func (f *fixture) receive() []pawl.Delivery {
	f.Helper()
	ds, err := f.source.Receive(f.Context(), 10)
	f.must(err)
	return ds
}

func (f *fixture) one() pawl.Delivery {
	f.Helper()
	ds := f.receive()
	if len(ds) != 1 {
		f.Fatalf("received %d deliveries, want 1", len(ds))
	}
	return ds[0]
}

func (f *fixture) plain(body string) *awssqs.SendMessageInput {
	return &awssqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &body}
}

func (f *fixture) poll() *awssqs.ReceiveMessageInput {
	return &awssqs.ReceiveMessageInput{QueueUrl: &f.url, WaitTimeSeconds: 20}
}

func (f *fixture) deleteQueue() {
	f.Helper()
	_, err := f.client.DeleteQueue(f.Context(), &awssqs.DeleteQueueInput{QueueUrl: &f.url})
	f.must(err)
}

// settleBehindOurBack deletes a delivery through a second source, without the first one knowing.
func (f *fixture) settleBehindOurBack(d pawl.Delivery) {
	f.Helper()
	other, err := pawlsqs.Open(f.Context(), f.client, "q", pawlsqs.Config{})
	f.must(err)
	f.must(other.Ack(f.Context(), committed(d)...))
}

// visible is how many messages another receiver could take now.
func (f *fixture) visible() int { return f.server.Stats("q").Ready }

func committed(ds ...pawl.Delivery) []pawl.Receipt {
	rs := make([]pawl.Receipt, len(ds))
	for i, d := range ds {
		rs[i] = receipt.Committed[pawl.Receipt](d.Handle)
	}
	return rs
}

// bubble runs a test on virtual time. It fails if a goroutine of the source outlives the test.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

func TestReceive_DeliversEverythingTheFlowNeeds(t *testing.T) {
	t.Parallel()
	f := overLoopback(t, sqstest.Faults{}, pawlsqs.Config{})
	before := time.Now().Add(-time.Second)
	_, err := f.client.SendMessage(f.Context(), &awssqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String(`{"n":1}`),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"Idempotency-Key": {DataType: aws.String("String"), StringValue: aws.String("order-1")},
			"Amount":          {DataType: aws.String("Number"), StringValue: aws.String("12.50")},
			"photo":           {DataType: aws.String("Binary.png"), BinaryValue: []byte{0, 1, 2}},
		}})
	f.must(err)
	d := f.one()
	if d.Key != "order-1" || string(d.Payload) != `{"n":1}` || d.Receives != 1 || d.MessageID == "" {
		t.Errorf("got %+v", d)
	}
	if d.SentAt.Before(before) || d.SentAt.After(time.Now().Add(time.Second)) {
		t.Errorf("sent at %v", d.SentAt)
	}
	if d.Attributes["Amount"] != "12.50" || d.Attributes["photo"+pawlsqs.BinarySuffix] != "AAEC" {
		t.Errorf("attributes %v", d.Attributes)
	}
	f.must(f.source.Ack(f.Context(), committed(d)...))
	if got := f.server.Stats("q"); got.Deleted != 1 || got.InFlight != 0 {
		t.Errorf("server %+v", got)
	}
	if got := f.source.Stats(); got.Polls != 1 || got.Received != 1 || got.Acked != 1 || got.Held != 0 {
		t.Errorf("source %+v", got)
	}
}

// A receipt without a commit must not delete a message.
func TestAck_RefusesTheZeroReceipt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.send("a")
		f.send("b")
		ds := f.receive()
		err := f.source.Ack(f.Context(), pawl.Receipt{}, committed(ds[0])[0])
		if pawl.CodeOf(err) != pawl.CodeArgumentInvalid || !strings.Contains(err.Error(), "1 of 2") {
			t.Fatalf("got %v", err)
		}
		if got := f.server.Stats("q"); got.Deleted != 1 || got.InFlight != 1 {
			t.Fatalf("the valid receipt beside it was not honoured, or too much was: %+v", got)
		}
		f.must(f.source.Release(f.Context(), 0, ds[1]))
	})
}

func wantCanceled(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
}
