package sqstest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Server holds queues. It is an [http.Handler] and, by its method Do, an aws.HTTPClient. All methods may be called
// from many goroutines.
type Server struct {
	region, account string
	inFlightLimit   int
	fifoQuota       int
	faults          atomic.Pointer[Faults]

	mu      sync.RWMutex
	queues  map[string]*queue
	deleted map[string]time.Time // names taken for a minute more
	moves   []*moveTask          // oldest first

	callsMu sync.Mutex
	calls   map[Call]int64 // by op and queue, N zero
}

// Options shape a Server; the zero value is fit for tests.
type Options struct {
	// Region stands in ARNs. Default us-east-1.
	Region string
	// Account stands in ARNs and queue URLs. Default 000000000000.
	Account string
	// InFlightLimit is how many messages of a queue may be in flight before OverLimit. Default 120,000, the quota of
	// standard queues ("Amazon SQS message quotas"); lower it to test the refusal.
	InFlightLimit int
	// FIFOQuota is how many calls of one action a FIFO queue takes in a second before it answers RequestThrottled, unless
	// its FifoThroughputLimit is perMessageGroupId. Default 0: no quota. That of AWS is 300 ("Amazon SQS message quotas").
	FIFOQuota int
	// Faults make the service misbehave. The zero value has none.
	Faults Faults
}

// New returns a server without queues.
func New(o Options) *Server {
	s := &Server{
		region: cmp.Or(o.Region, "us-east-1"), account: cmp.Or(o.Account, "000000000000"),
		inFlightLimit: cmp.Or(o.InFlightLimit, defaultInFlight), fifoQuota: o.FIFOQuota,
		queues: map[string]*queue{}, deleted: map[string]time.Time{}, calls: map[Call]int64{},
	}
	s.SetFaults(o.Faults)
	return s
}

// SetFaults replaces the faults for every call that starts from now on.
func (s *Server) SetFaults(f Faults) { s.faults.Store(&f) }

// A Listener is a server that can be reached.
type Listener struct {
	// URL is the endpoint, for sqs.Options.BaseEndpoint: "http://127.0.0.1:40123".
	URL  string
	http *http.Server
	stop context.CancelFunc
}

type baseKey struct{} // of the listener's life, in a request's context

// Start serves on a free port of 127.0.0.1 until Close.
func (s *Server) Start() (*Listener, error) { return s.StartAt("127.0.0.1:0") }

// StartAt serves on an address, "127.0.0.1:9324", until Close. Whoever reaches it may use it: nothing is authenticated.
func (s *Server) StartAt(address string) (*Listener, error) {
	socket, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(life, baseKey{}, life)
		},
	}
	go server.Serve(socket)
	return &Listener{URL: "http://" + socket.Addr().String(), http: server, stop: stop}, nil
}

// Close ends the listener, its connections and its polls. The queues stay.
func (l *Listener) Close() error {
	l.stop()
	return l.http.Close()
}

// ServeHTTP answers one call of the JSON protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := s.answer(r)
	if a.cut {
		panic(http.ErrAbortHandler) // drops the connection, as documented by net/http
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// ErrCut is what [Server.Do] returns when a fault drops the connection.
var ErrCut = errors.New("sqstest: connection cut before the answer arrived")

// Do answers a request without a network: pass the server as sqs.Options.HTTPClient. When the request's context ends
// first, Do returns its error, as a real client would.
func (s *Server) Do(r *http.Request) (*http.Response, error) {
	done := make(chan answer, 1)
	go func() { done <- s.answer(r) }()
	select {
	case a := <-done:
		if a.cut {
			return nil, ErrCut
		}
		return &http.Response{
			StatusCode: a.status, Status: http.StatusText(a.status),
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
		}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// answer is what goes back: a response, or a cut connection.
type answer struct {
	status int
	header http.Header
	body   []byte
	cut    bool
}

var errCut = &Error{Shape: "cut"} // travels as an error, never reaches the wire

// answer has an id of its own, in the header that AWS sends and clients log.
func (s *Server) answer(r *http.Request) answer {
	a, id := s.unnamed(r), newID()
	if a.header != nil {
		a.header.Set("X-Amzn-Requestid", id)
	}
	a.body = bytes.Replace(a.body, []byte(requestID), []byte(id), 1)
	return a
}

func (s *Server) unnamed(r *http.Request) answer {
	if isQuery(r) {
		return inXML(unsupported("the query protocol is not served. Use a client of the JSON protocol: botocore 1.31.81 or later " +
			"(boto3 1.28.81, kombu and Celery with such a boto3), aws-sdk-go-v2, AWS SDK for Java 2.21.19, for JavaScript 3.446."))
	}
	op, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	if !ok || r.Body == nil {
		return failed(failure("InvalidAction", "", "sqstest: only the JSON protocol of SQS is served."))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	if err != nil || len(body) > maxRequest {
		return failed(failure("RequestEntityTooLarge", "", "sqstest: a request may have %d octets.", maxRequest))
	}
	result, fail := s.call(request{ctx: r.Context(), op: op, body: body, base: baseURL(r)})
	if fail == errCut {
		return answer{cut: true}
	}
	if fail != nil {
		return failed(fail)
	}
	text, err := json.Marshal(result)
	if err != nil {
		return failed(&Error{Shape: "InternalError", Status: 500, Message: err.Error()})
	}
	return answer{status: http.StatusOK, header: jsonHeader(), body: text}
}

func failed(e *Error) answer {
	header := jsonHeader()
	blame := "Sender"
	if !e.senderFault() {
		blame = "Receiver"
	}
	header.Set("X-Amzn-Query-Error", e.code()+";"+blame)
	text, _ := json.Marshal(map[string]string{"__type": "com.amazonaws.sqs#" + e.Shape, "message": e.Message})
	return answer{status: e.status(), header: header, body: text}
}

// isQuery recognises the older protocol, in which the parameters are a form.
func isQuery(r *http.Request) bool {
	return r.Header.Get("X-Amz-Target") == "" &&
		(strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") || r.URL.Query().Has("Action"))
}

// requestID stands where the id of the request belongs into the body.
const requestID = "00000000-0000-0000-0000-000000000000"

// inXML is an error as clients of the query protocol parse it ("Common errors" of the API reference).
func inXML(e *Error) answer {
	type fault struct{ Type, Code, Message, Detail string }
	text, _ := xml.Marshal(struct {
		XMLName   xml.Name `xml:"http://queue.amazonaws.com/doc/2012-11-05/ ErrorResponse"`
		Error     fault
		RequestId string
	}{Error: fault{"Sender", e.code(), e.Message, ""}, RequestId: requestID})
	return answer{status: e.status(), header: http.Header{"Content-Type": {"text/xml"}}, body: append([]byte(xml.Header), text...)}
}

func jsonHeader() http.Header {
	return http.Header{"Content-Type": {"application/x-amz-json-1.0"}}
}

// baseURL is the endpoint the client used; queue URLs start with it.
func baseURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.URL.Scheme == "https" {
		scheme = "https"
	}
	return scheme + "://" + cmp.Or(r.Host, r.URL.Host)
}

func (s *Server) arn(name string) string {
	return fmt.Sprintf("arn:aws:sqs:%s:%s:%s", s.region, s.account, name)
}

func (s *Server) queueURL(base, name string) string { return base + "/" + s.account + "/" + name }

func (s *Server) named(name string) *queue {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.queues[name]
}

func (s *Server) byARN(arn string) *queue {
	name, ok := strings.CutPrefix(arn, s.arn(""))
	if !ok {
		return nil
	}
	return s.named(name)
}

// nameOf takes the queue's name out of its URL; the host may be any.
func nameOf(queueURL string) (account, name string, ok bool) {
	u, err := url.Parse(queueURL)
	if err != nil || u.Host == "" {
		return "", "", false
	}
	account, name, ok = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return account, name, ok && name != ""
}
