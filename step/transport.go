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

// A Transport adds the call's idempotency key to the requests of a client, detects requests that
// were certainly not sent, and records the [Exchange]. Use it with the client that an SDK takes:
//
//	client := &http.Client{Transport: &step.Transport{}}
//
// One call is one request. A second one, by an SDK's retry or a redirect, is refused once the first
// may have been sent. A request outside of [Run] is refused, since nothing would record its effect.
type Transport struct {
	// Base sends the requests. Default [http.DefaultTransport]. A kept connection may break under a
	// request, which is ambiguous; with [AtMostOnce] prefer a transport without keep-alives.
	Base http.RoundTripper
	// Header carries the key and replaces the client's value. Default "Idempotency-Key". "-" sets
	// none, for providers that take the key in the body or take none.
	Header string
	// RequestID is the response header for the provider's support. Default "Request-Id".
	RequestID string
	// Reads lets GET, HEAD and OPTIONS pass without a call or key, for probes and lookups.
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

// mayRequest checks the clock as late as possible.
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

// first reports whether nothing was sent before, and marks this request as sent.
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

// send sends a request once. If a connection was requested and none was obtained, the request was
// certainly not sent. That includes TLS and proxy tunnels, because a request is written only to a
// ready connection. The transport must report both events.
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
	// net/http resends a request when a kept connection breaks, if it has no body or a GetBody.
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
