package effect

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
)

// A Transport gives the requests of an existing client the idempotency key of the call that their context belongs to, and tells
// apart what was certainly not sent. Put it into the client that an SDK takes:
//
//	client := &http.Client{Transport: &effect.Transport{}}
//
// A request outside of [Do] is refused: an effect must not slip by.
type Transport struct {
	// Base sends the requests. Default [http.DefaultTransport].
	Base http.RoundTripper
	// Header carries the key. Default "Idempotency-Key".
	Header string
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
	if !ok {
		closeBody(r)
		return nil, NotSent(&pawl.Error{Op: "effect.transport", Code: pawl.CodeArgumentInvalid,
			Err: errors.New("a request outside of effect.Do: its context belongs to no call"), Hint: "pass on the context that Do hands to its function"})
	}
	if !time.Now().Before(c.Deadline) {
		closeBody(r)
		return nil, overdue(r.Context())
	}
	var wrote atomic.Bool
	r = r.Clone(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		WroteHeaderField: func(string, []string) { wrote.Store(true) },
	}))
	header := t.Header
	if header == "" {
		header = "Idempotency-Key"
	}
	r.Header.Set(header, c.Key)
	// One call is one request: net/http sends a request again by itself when a kept connection breaks, if it carries this header.
	r.GetBody = nil
	if r.Body == nil || r.Body == http.NoBody {
		r.Body = io.NopCloser(strings.NewReader(""))
	}
	response, err := base.RoundTrip(r)
	if err != nil && !wrote.Load() {
		return nil, NotSent(err)
	}
	return response, err
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
