package pawltest

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/provider"
)

// A Lie is a fault that a [Provider] simulates for one request: one of the constants, such as
// [FailAfter], or "" for none.
type Lie = provider.Lie

// The faults of a [Provider], for the function given to [NewProvider].
const (
	TimeOutBefore = provider.TimeOutBefore // the connection stays silent; nothing happens
	TimeOutAfter  = provider.TimeOutAfter  // it acts and does not answer
	CutBefore     = provider.CutBefore     // the connection is closed
	CutAfter      = provider.CutAfter      // it acts and closes the connection
	FailBefore    = provider.FailBefore    // 500; nothing happens
	FailAfter     = provider.FailAfter     // it acts and answers 500
	Forget        = provider.Forget        // it acts as if the key were new
	// Conflict: 409, because another request with the key is in progress. It does not act.
	Conflict = provider.Conflict
	// Decline: 402, no fault. It refuses permanently, with the same answer for the key.
	Decline = provider.Decline
)

// A Charge is one action that a [Provider] executed. Its fields, all strings, are ID, Key and Body:
// the request's Idempotency-Key, which may be empty, and its body.
type Charge = provider.Charge

// A Provider is an HTTP server that acts on POST /charges and remembers idempotency keys, as
// payment providers do. It simulates the faults that the test asks for. GET /charges?body=B finds a
// charge by its body, GET /charges?key=K by its key: 200 with the charge, or 404.
//
// It records what it executed, so that a test can count effects.
type Provider struct {
	// URL of the server.
	URL string

	server *provider.Server
}

// NewProvider starts a provider that remembers keys for the duration memory and stops with the
// test. It calls lie for every POST, numbered from 0. lie may read the body; nil means no faults.
func NewProvider(tb testing.TB, memory time.Duration, lie func(n int, r *http.Request) Lie) *Provider {
	tb.Helper()
	p := &Provider{server: provider.New(memory, lie)}
	server := httptest.NewServer(p.server)
	p.URL = server.URL
	tb.Cleanup(func() {
		p.server.Release()
		server.Close()
	})
	return p
}

// Charges returns the executed charges, in order.
func (p *Provider) Charges() []Charge { return p.server.Charges() }

// Requests returns the number of POST requests.
func (p *Provider) Requests() int { return p.server.Requests() }
