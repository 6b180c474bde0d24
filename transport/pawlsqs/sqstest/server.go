package sqstest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Server holds queues. It is an [http.Handler] and, by its method Do, an aws.HTTPClient. All
// methods may be called from many goroutines.
type Server struct {
	region, account string
	inFlightLimit   int
	fifoQuota       int
	faults          atomic.Pointer[Faults]

	mu      sync.RWMutex
	queues  map[string]*queue
	deleted map[string]time.Time // names of deleted queues, reserved for one minute
	moves   []*moveTask          // oldest first

	callsMu sync.Mutex
	calls   map[Call]int64 // by op and queue, N zero
}

// Options configure a Server. The zero value is fit for tests.
type Options struct {
	// Region is the region in ARNs. Default us-east-1.
	Region string
	// Account is the account in ARNs and queue URLs. Default 000000000000.
	Account string
	// InFlightLimit is how many messages of a queue may be in flight before OverLimit. Default
	// 120,000, the quota of standard queues ("Amazon SQS message quotas"). Lower it to test the
	// refusal.
	InFlightLimit int
	// FIFOQuota is how many calls of one action a FIFO queue takes in a second before it returns
	// RequestThrottled. It does not apply if FifoThroughputLimit is perMessageGroupId. Default 0:
	// no quota. AWS's quota is 300 ("Amazon SQS message quotas").
	FIFOQuota int
	// Faults make the service misbehave. The zero value does nothing.
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

// SetFaults replaces the faults for calls that start from now on.
func (s *Server) SetFaults(f Faults) { s.faults.Store(&f) }

// A Listener serves a Server on a TCP address.
type Listener struct {
	// URL is the endpoint, for sqs.Options.BaseEndpoint: "http://127.0.0.1:40123".
	URL  string
	http *http.Server
	stop context.CancelFunc
}

type baseKey struct{} // key of the listener's context in a request's context

// Start serves on a free port of 127.0.0.1 until Close.
func (s *Server) Start() (*Listener, error) { return s.StartAt("127.0.0.1:0") }

// StartAt serves on an address, such as "127.0.0.1:9324", until Close. Requests are not
// authenticated.
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

// Close stops the listener, its connections and its polls. The queues stay.
func (l *Listener) Close() error {
	l.stop()
	return l.http.Close()
}

// ServeHTTP answers one call of either protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := s.respond(r)
	if a.cut {
		panic(http.ErrAbortHandler) // drops the connection (net/http)
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// ErrCut is the error of [Server.Do] when a fault drops the connection.
var ErrCut = errors.New("sqstest: connection cut before the answer arrived")

// Do answers a request without a network: pass the server as sqs.Options.HTTPClient. If the
// request's context ends first, Do returns its error, as a real client would.
func (s *Server) Do(r *http.Request) (*http.Response, error) {
	done := make(chan response, 1)
	go func() { done <- s.respond(r) }()
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

type response struct {
	status int
	header http.Header
	body   []byte
	idAt   int // offset in body at which to insert the request's id; 0 means none
	cut    bool
}

var errCut = &Error{Shape: "cut"} // passed as an error inside the server, never sent

// A protocol is one of SQS's two protocols: it reads a call and writes its result or error.
type protocol struct {
	read   func(*http.Request) (op string, body []byte, _ *Error) // body is in the JSON protocol
	result func(op string, result any) (response, error)
	failed func(*Error) response
}

// respond adds a request id, in the header that AWS sends and clients log, and for XML in the body
// too.
func (s *Server) respond(r *http.Request) response {
	a, id := s.unnamed(r), newID()
	if a.header != nil {
		a.header.Set("X-Amzn-Requestid", id)
	}
	if a.idAt > 0 {
		a.body = slices.Insert(a.body, a.idAt, []byte(id)...)
	}
	return a
}

func (s *Server) unnamed(r *http.Request) response {
	p := inJSON
	if isQuery(r) {
		p = inXML
	}
	op, body, fail := p.read(r)
	if fail != nil {
		return p.failed(fail)
	}
	result, fail := s.call(request{ctx: r.Context(), op: op, body: body, base: baseURL(r)})
	if fail == errCut {
		return response{cut: true}
	}
	if fail != nil {
		return p.failed(fail)
	}
	a, err := p.result(op, result)
	if err != nil {
		return p.failed(&Error{Shape: "InternalError", Status: http.StatusInternalServerError, Message: err.Error()})
	}
	return a
}

func readBody(r *http.Request) ([]byte, *Error) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	if err != nil || len(body) > maxRequest {
		return nil, failure("RequestEntityTooLarge", "", "sqstest: a request may have %d octets.", maxRequest)
	}
	return body, nil
}

// inJSON is the protocol of current SDKs.
var inJSON = protocol{
	read: func(r *http.Request) (string, []byte, *Error) {
		op, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
		if !ok {
			return "", nil, failure("InvalidAction", "", "sqstest: this is neither the JSON protocol of SQS, with its header X-Amz-Target, nor the query "+
				"protocol, with its parameter Action.")
		}
		body, failed := readBody(r)
		return op, body, failed
	},
	result: func(_ string, result any) (response, error) {
		text, err := json.Marshal(result)
		return response{status: http.StatusOK, header: jsonHeader(), body: text}, err
	},
	failed: func(e *Error) response {
		header := jsonHeader()
		header.Set("X-Amzn-Query-Error", e.code()+";"+e.blame())
		text, _ := json.Marshal(map[string]string{"__type": "com.amazonaws.sqs#" + e.Shape, "message": e.Message})
		return response{status: e.status(), header: header, body: text}
	},
}

func jsonHeader() http.Header {
	return http.Header{"Content-Type": {"application/x-amz-json-1.0"}}
}

// baseURL is the endpoint that the client used. Queue URLs start with it.
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

// nameOf returns the account and the queue's name from its URL. The host is ignored.
func nameOf(queueURL string) (account, name string, ok bool) {
	u, err := url.Parse(queueURL)
	if err != nil || u.Host == "" {
		return "", "", false
	}
	account, name, ok = strings.Cut(strings.Trim(u.Path, "/"), "/")
	return account, name, ok && name != ""
}
