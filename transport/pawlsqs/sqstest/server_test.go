package sqstest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// fixture is one queue on its own server, through the real SDK.
type fixture struct {
	*testing.T
	server *sqstest.Server
	client *sqs.Client
	url    string // of the queue "q"
}

// direct reaches the server without a socket, so it can run in a synctest bubble.
func direct(t *testing.T, o sqstest.Options, attributes map[string]string) *fixture {
	s := sqstest.New(o)
	f := &fixture{T: t, server: s, client: client(s, "http://sqs.test")}
	f.url = f.create("q", attributes)
	return f
}

// loopback reaches the server through a real connection.
func loopback(t *testing.T, o sqstest.Options, attributes map[string]string) *fixture {
	t.Helper()
	s := sqstest.New(o)
	l, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f := &fixture{T: t, server: s, client: client(nil, l.URL)}
	f.url = f.create("q", attributes)
	return f
}

func client(h aws.HTTPClient, endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint, HTTPClient: h,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", "")})
}

func (f *fixture) create(name string, attributes map[string]string) string {
	f.Helper()
	out, err := f.client.CreateQueue(f.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	f.must(err)
	return *out.QueueUrl
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// after calls act once d has passed, and returns a function that waits until act has returned. A
// test calls that before it ends, because act would fail with the cancelled context of an ended
// test.
func (f *fixture) after(d time.Duration, act func() error) (wait func()) {
	done := make(chan error, 1)
	time.AfterFunc(d, func() { done <- act() })
	return func() {
		f.Helper()
		f.must(<-done)
	}
}

func (f *fixture) send(body string) string {
	f.Helper()
	id, err := f.trySend(body)
	f.must(err)
	return id
}

func (f *fixture) trySend(body string) (id string, err error) {
	out, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &body})
	if err != nil {
		return "", err
	}
	return *out.MessageId, nil
}

// receive asks for ten messages with every attribute and waits at most wait.
func (f *fixture) receive(wait time.Duration) []types.Message {
	f.Helper()
	return f.receiveFrom(f.url, wait)
}

func (f *fixture) receiveFrom(url string, wait time.Duration) []types.Message {
	f.Helper()
	out, err := f.client.ReceiveMessage(f.Context(), poll(url, wait))
	f.must(err)
	return out.Messages
}

func poll(url string, wait time.Duration) *sqs.ReceiveMessageInput {
	return &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: int32(wait / time.Second),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}}
}

// one receives exactly one message.
func (f *fixture) one(wait time.Duration) types.Message {
	f.Helper()
	return f.oneFrom(f.url, wait)
}

func (f *fixture) oneFrom(url string, wait time.Duration) types.Message {
	f.Helper()
	ms := f.receiveFrom(url, wait)
	if len(ms) != 1 {
		f.Fatalf("received %d messages, want 1", len(ms))
	}
	return ms[0]
}

func (f *fixture) none(wait time.Duration) {
	f.Helper()
	if ms := f.receive(wait); len(ms) != 0 {
		f.Fatalf("received %d messages, want none", len(ms))
	}
}

func (f *fixture) delete(m types.Message) error {
	_, err := f.client.DeleteMessage(f.Context(), &sqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (f *fixture) hide(m types.Message, seconds int32) error {
	_, err := f.client.ChangeMessageVisibility(f.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &f.url,
		ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds})
	return err
}

// wantCode checks the error's code in the query protocol, which the SDK passes on.
func (f *fixture) wantCode(err error, code string) {
	f.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != code {
		f.Fatalf("got error %v, want code %s", err, code)
	}
}

// The SDK checks the MD5 of the body both ways, so a wrong digest would fail here.
func TestSendReceiveDelete(t *testing.T) {
	t.Parallel()
	f := loopback(t, sqstest.Options{}, nil)
	id := f.send("hello, wörld \U0001F600")
	m := f.one(0)
	if *m.MessageId != id || *m.Body != "hello, wörld \U0001F600" {
		t.Fatalf("got %s %q", *m.MessageId, *m.Body)
	}
	f.must(f.delete(m))
	stats := f.server.Stats("q")
	if stats.Sent != 1 || stats.Received != 1 || stats.Deleted != 1 || stats.InFlight != 0 {
		t.Fatalf("stats %+v", stats)
	}
}
