package pawltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// A Lie is how a [Provider] misbehaves in one request.
type Lie string

// The lies. The zero Lie is none.
const (
	TimeOutBefore Lie = "time out before acting" // the connection stays silent; nothing happens
	TimeOutAfter  Lie = "time out after acting"  // it acts and does not answer
	CutBefore     Lie = "cut before acting"      // the connection is closed
	CutAfter      Lie = "cut after acting"
	FailBefore    Lie = "500 before acting"
	FailAfter     Lie = "500 after acting"
	Forget        Lie = "forget the key" // it acts as if it had never seen the key
	Conflict      Lie = "409"            // says that another request with the key is at work; does nothing
)

// A Charge is one thing that a [Provider] really did.
type Charge struct {
	ID   string `json:"id"`
	Key  string `json:"key"` // the Idempotency-Key it came with; may be empty
	Body string `json:"body"`
}

// A Provider is an HTTP server that acts on POST /charges and remembers idempotency keys, as payment providers do, and lies as
// much as it is told to. GET /charges?body=B finds a charge by what was asked for: 200 with it, or 404.
//
// It counts what it really did, which is what a test of exactly-once must look at.
type Provider struct {
	// URL of the server.
	URL string

	memory  time.Duration
	lie     func(n int, r *http.Request) Lie
	release chan struct{} // ends requests that hang

	mu      sync.Mutex
	n       int
	answers map[string]answer // by key
	charges []Charge
}

type answer struct {
	charge Charge
	until  time.Time
}

// NewProvider starts a provider that remembers a key for as long as memory. lie is asked at every POST, with its number from 0; nil
// is honest. It stops when the test ends.
func NewProvider(tb testing.TB, memory time.Duration, lie func(n int, r *http.Request) Lie) *Provider {
	tb.Helper()
	p := &Provider{memory: memory, lie: lie, release: make(chan struct{}), answers: map[string]answer{}}
	if p.lie == nil {
		p.lie = func(int, *http.Request) Lie { return "" }
	}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	p.URL = server.URL
	tb.Cleanup(func() {
		close(p.release)
		server.Close()
	})
	return p
}

// Charges returns what was really done, in order.
func (p *Provider) Charges() []Charge {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Charge(nil), p.charges...)
}

// Requests returns how many POST requests came.
func (p *Provider) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		p.find(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p.mu.Lock()
	lie := p.lie(p.n, r)
	p.n++
	p.mu.Unlock()
	switch lie {
	case TimeOutBefore:
		p.hang(r)
	case CutBefore:
		panic(http.ErrAbortHandler)
	case FailBefore:
		http.Error(w, "out of order", http.StatusInternalServerError)
	case Conflict:
		http.Error(w, "a request with this key is in progress", http.StatusConflict)
	default:
		c := p.act(r.Header.Get("Idempotency-Key"), string(body), lie == Forget)
		switch lie {
		case TimeOutAfter:
			p.hang(r)
		case CutAfter:
			panic(http.ErrAbortHandler)
		case FailAfter:
			http.Error(w, "out of order", http.StatusInternalServerError)
		default:
			reply(w, c)
		}
	}
}

// hang keeps a request open until its client, or the test, gives up.
func (p *Provider) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-p.release:
	}
	panic(http.ErrAbortHandler)
}

func (p *Provider) act(key, body string, forgetful bool) Charge {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seen, ok := p.answers[key]; ok && key != "" && !forgetful && time.Now().Before(seen.until) {
		return seen.charge
	}
	c := Charge{ID: fmt.Sprintf("ch_%d", len(p.charges)+1), Key: key, Body: body}
	p.charges = append(p.charges, c)
	p.answers[key] = answer{c, time.Now().Add(p.memory)}
	return c
}

func (p *Provider) find(w http.ResponseWriter, r *http.Request) {
	for _, c := range p.Charges() {
		if c.Body == r.URL.Query().Get("body") {
			reply(w, c)
			return
		}
	}
	http.NotFound(w, r)
}

func reply(w http.ResponseWriter, c Charge) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(c)
}
