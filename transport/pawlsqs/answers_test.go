package pawlsqs_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// The sink matches results to messages by entry id, in any order of entries and results. A message
// without a result is not published.
func TestSink_Answers(t *testing.T) {
	t.Parallel()
	transporttest.RunSink(t, transporttest.Destination{Named: true, Open: func(t *testing.T, a *transporttest.Responses) transporttest.Outlet {
		server := sqstest.New(sqstest.Options{})
		e := &endpoint{server: server, answers: a, cut: make(chan struct{})}
		client := newClient(e, "http://sqs.test")
		createQueue(t, client, "q")
		sink, err := pawlsqs.OpenSink(t.Context(), client, "q", pawlsqs.SinkConfig{})
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.Outlet{Sink: sink, Cut: e.cutAll, Refused: func(m pawl.Message) pawl.Message {
			m.Headers["refuse"] = "yes"
			return m
		}}
	}})
}

// An endpoint is a server that refuses messages with the attribute "refuse" and holds responses to
// SendMessageBatch until released.
type endpoint struct {
	server  *sqstest.Server
	answers *transporttest.Responses

	mu  sync.Mutex
	cut chan struct{}
}

func (e *endpoint) cutAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.cut)
	e.cut = make(chan struct{})
}

// An sqsBatch is a SendMessageBatch request. Entries stay as received.
type sqsBatch struct {
	QueueUrl string
	Entries  []json.RawMessage
}

// An sqsAnswer is the response.
type sqsAnswer struct {
	Successful, Failed []map[string]any
}

func (e *endpoint) Do(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".SendMessageBatch") {
		return e.server.Do(r)
	}
	e.mu.Lock()
	cut := e.cut
	e.mu.Unlock()
	var in sqsBatch
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	var said sqsAnswer
	var all, sent []string
	ids := map[string]string{} // message ids by entry id
	in.Entries = slices.DeleteFunc(in.Entries, func(raw json.RawMessage) bool {
		var one struct {
			Id                string
			MessageAttributes map[string]struct{ StringValue string }
		}
		_ = json.Unmarshal(raw, &one)
		id := one.MessageAttributes[pawl.HeaderEventID].StringValue
		ids[one.Id], all = id, append(all, id)
		e.answers.Arrived()
		_, refused := one.MessageAttributes["refuse"]
		if refused && !e.answers.Omits(id) {
			said.Failed = append(said.Failed, map[string]any{"Id": one.Id, "SenderFault": true, "Code": "InvalidMessageContents", "Message": id + " is refused"})
		}
		return refused
	})
	response, err := e.forward(r, in)
	if err != nil {
		return nil, err
	}
	if response != nil {
		var stored sqsAnswer
		if err := json.NewDecoder(response.Body).Decode(&stored); err != nil {
			return nil, err
		}
		for _, one := range slices.Backward(stored.Successful) { // SQS promises no order
			if id := ids[one["Id"].(string)]; !e.answers.Omits(id) {
				said.Successful, sent = append(said.Successful, one), append(sent, id)
			}
		}
	}
	now := make(chan struct{})
	e.answers.Send(all, sent, func() { close(now) })
	select {
	case <-now:
	case <-cut:
		return nil, io.ErrUnexpectedEOF
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	body, err := json.Marshal(said)
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)), Request: r,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
}

// forward sends the rest of a batch to the server, or nothing if it is empty.
func (e *endpoint) forward(r *http.Request, in sqsBatch) (*http.Response, error) {
	if len(in.Entries) == 0 {
		return nil, nil
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return e.server.Do(r)
}

var _ aws.HTTPClient = (*endpoint)(nil)
