package pawlsqs_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// A slowWriter responds before it has read the request's body to its end, as net/http's transport
// may.
type slowWriter struct {
	server *sqstest.Server
	unread []io.ReadCloser // bodies of receives
}

func (w *slowWriter) Do(r *http.Request) (*http.Response, error) {
	body := r.Body
	whole, err := io.ReadAll(io.LimitReader(body, r.ContentLength))
	if err != nil {
		return nil, err
	}
	sent := r.Clone(r.Context()) // the SDK keeps the original request
	sent.Body = io.NopCloser(bytes.NewReader(whole))
	if r.Header.Get("X-Amz-Target") == "AmazonSQS.ReceiveMessage" {
		w.unread = append(w.unread, body)
	}
	return w.server.Do(sent)
}

// The SDK closes a request's body once it has the response's headers. A connection that still reads
// the body must not see an error. It would be dropped, with the messages in the response.
func TestReceive_BodyOutlivesTheAnswer(t *testing.T) {
	t.Parallel()
	w := &slowWriter{server: sqstest.New(sqstest.Options{})}
	endpoint := "http://sqs.test"
	client := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint, HTTPClient: w,
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	queue := "q"
	if _, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &queue}); err != nil {
		t.Fatal(err)
	}
	source, err := pawlsqs.Open(t.Context(), client, queue, pawlsqs.Config{Wait: pawlsqs.ShortPoll})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Receive(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if len(w.unread) != 1 {
		t.Fatalf("%d receives, want 1", len(w.unread))
	}
	// as transferWriter.writeBody reads
	if n, err := io.Copy(io.Discard, w.unread[0]); n != 0 || err != nil {
		t.Errorf("looking for the body's end: %d octets, %v; want nothing and no error", n, err)
	}
}
