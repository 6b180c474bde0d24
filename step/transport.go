package step

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
)

// A Transport gives the request of an existing client the idempotency key of the call that its context belongs to, tells apart what
// was certainly not sent, and notes the [Exchange]. Put it into the client that an SDK takes:
//
//	client := &http.Client{Transport: &step.Transport{}}
//
// One call is one request: a second one, by the retries of an SDK or a redirect, is refused once the first may have left. A
// request outside of [Run] is refused too: an effect must not slip by.
type Transport struct {
	// Base sends the requests. Default [http.DefaultTransport]. A kept connection that breaks under a request leaves a doubt; with
	// [AtMostOnce] a transport without keep-alives has fewer of them.
	Base http.RoundTripper
	// Header carries the key, over whatever the client has set. Default "Idempotency-Key". "-" sets none: for providers that take
	// the key in the body, or none at all.
	Header string
	// RequestID is the header of the answer that names the request for the provider's support. Default "Request-Id".
	RequestID string
	// Reads lets requests of the methods GET, HEAD and OPTIONS through without a call and without a key, for probes and lookups.
	Reads bool
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if t.Reads && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions) {
		return base.RoundTrip(r)
	}
	c, ok := CallOf(r.Context())
	if err := mayRequest(r, c, ok); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return t.send(base, r, c)
}

// mayRequest looks at the clock as late as possible.
func mayRequest(r *http.Request, c Call, ok bool) error {
	switch {
	case !ok || c.seen == nil:
		return NotSent(&pawl.Error{Op: "step.transport", Code: pawl.CodeArgumentInvalid,
			Err: errors.New("a request outside of step.Run: its context belongs to no call"), Hint: "pass on the context that Run hands to its function"})
	case !c.seen.first():
		return &pawl.Error{Op: "step.transport", Code: pawl.CodeArgumentInvalid,
			Err: errors.New("one call is one request, and the first may have been executed"), Hint: "switch off the retries and redirects of the client; make another request another step"}
	case c.overdue(), r.Context().Err() != nil:
		c.seen.unsent()
		return overdue(r.Context())
	}
	return nil
}

// first reports whether nothing has been sent yet, and takes it that this request will be.
func (s *seen) first() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.sent
	s.sent = true
	return !before
}

func (s *seen) unsent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = false
}

// send sends a request once. It was certainly not sent if a connection was asked for and none was had, which is true of TLS and
// proxy tunnels as well: the request is written to a connection that is ready. Only transports that report both are believed.
func (t *Transport) send(base http.RoundTripper, r *http.Request, c Call) (*http.Response, error) {
	var asked, got atomic.Bool
	r = r.Clone(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	}))
	if header := t.Header; header != "-" {
		if header == "" {
			header = "Idempotency-Key"
		}
		r.Header.Set(header, c.Key())
	}
	// net/http sends a request again by itself when a kept connection breaks, if it has no body or can have it again.
	r.GetBody = nil
	if r.Body == nil || r.Body == http.NoBody {
		r.Body = io.NopCloser(strings.NewReader(""))
	}
	start := time.Now()
	response, err := base.RoundTrip(r)
	t.note(c, r, response, time.Since(start))
	if err != nil && asked.Load() && !got.Load() {
		c.seen.unsent()
		return nil, NotSent(err)
	}
	return response, err
}

func (t *Transport) note(c Call, r *http.Request, response *http.Response, took time.Duration) {
	e := &Exchange{Method: r.Method, Host: r.URL.Host, TookMS: took.Milliseconds()}
	if response != nil {
		header := t.RequestID
		if header == "" {
			header = "Request-Id"
		}
		e.Status, e.RequestID = response.StatusCode, text.Octets(response.Header.Get(header), 255)
	}
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	c.seen.exchange = e
}
