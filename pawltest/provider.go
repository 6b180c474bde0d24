package pawltest

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/provider"
)

// A Lie is how a [Provider] misbehaves in one request.
type Lie = provider.Lie

// The lies. The zero Lie is none.
const (
	TimeOutBefore = provider.TimeOutBefore // the connection stays silent; nothing happens
	TimeOutAfter  = provider.TimeOutAfter  // it acts and does not answer
	CutBefore     = provider.CutBefore     // the connection is closed
	CutAfter      = provider.CutAfter      // it acts, and the connection is closed
	FailBefore    = provider.FailBefore    // 500; nothing happens
	FailAfter     = provider.FailAfter     // it acts and answers 500
	Forget        = provider.Forget        // it acts as if it had never seen the key
	Conflict      = provider.Conflict      // 409: another request with the key is at work; does nothing
	Decline       = provider.Decline       // 402, and no lie: it refuses for good, and every request with the key gets the same answer
)

// A Charge is one thing that a [Provider] really did: its ID, the Idempotency-Key it came with, and its Body.
type Charge = provider.Charge

// A Provider is an HTTP server that acts on POST /charges and remembers idempotency keys, as payment providers do, and lies as
// much as it is told to. GET /charges?body=B finds a charge by what was asked for, GET /charges?key=K by its key: 200 with it, or 404.
//
// It counts what it really did, which is what a test of exactly-once must look at.
type Provider struct {
	// URL of the server.
	URL string

	server *provider.Server
}

// NewProvider starts a provider that remembers a key for as long as memory. lie is asked at every POST, with its number from 0,
// and may read the body; nil is honest. It stops when the test ends.
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

// Charges returns what was really done, in order.
func (p *Provider) Charges() []Charge { return p.server.Charges() }

// Requests returns how many POST requests came.
func (p *Provider) Requests() int { return p.server.Requests() }
