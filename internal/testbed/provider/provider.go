// Package provider is a payment provider with faults, for package pawltest, which documents it, and
// for the demo.
package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// A Lie is a fault of a [Server] in one request.
type Lie string

// The faults. The zero Lie is an honest answer.
const (
	TimeOutBefore Lie = "time out before acting" // the connection stays silent, and nothing happens
	TimeOutAfter  Lie = "time out after acting"  // acts, and does not answer
	CutBefore     Lie = "cut before acting"      // the connection is closed
	CutAfter      Lie = "cut after acting"
	FailBefore    Lie = "500 before acting"
	FailAfter     Lie = "500 after acting"
	Forget        Lie = "forget the key" // acts as if the key were new
	// Conflict says that another request with the key is in progress, and does nothing.
	Conflict Lie = "409"
	// Decline is not a fault: it declines for good and remembers that under the key.
	Decline Lie = "402"
)

// A Charge is one charge that a [Server] really made.
type Charge struct {
	ID   string `json:"id"`
	Key  string `json:"key"` // the request's Idempotency-Key; may be empty
	Body string `json:"body"`
}

// A Server is an [http.Handler].
type Server struct {
	memory  time.Duration
	lie     func(n int, r *http.Request) Lie
	release chan struct{} // ends hanging requests

	mu        sync.Mutex
	n         int
	responses map[string]response // by key
	charges   []Charge
}

type response struct {
	charge   Charge
	declined bool
	until    time.Time
}

// New returns a server that remembers a key for the duration memory. lie chooses the fault of each
// POST request, which it gets with its number from 0. It may read the body. If lie is nil, all
// answers are honest.
func New(memory time.Duration, lie func(n int, r *http.Request) Lie) *Server {
	if lie == nil {
		lie = func(int, *http.Request) Lie { return "" }
	}
	return &Server{memory: memory, lie: lie, release: make(chan struct{}), responses: map[string]response{}}
}

// Release ends the hanging requests. Call it once, last.
func (s *Server) Release() { close(s.release) }

// Charges returns the charges really made, in order.
func (s *Server) Charges() []Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Charge(nil), s.charges...)
}

// Requests returns the number of POST requests.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.find(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	lie := s.lie(s.n, r)
	s.n++
	s.mu.Unlock()
	switch lie {
	case TimeOutBefore:
		s.hang(r)
	case CutBefore:
		panic(http.ErrAbortHandler)
	case FailBefore:
		http.Error(w, "out of order", http.StatusInternalServerError)
	case Conflict:
		http.Error(w, "a request with this key is in progress", http.StatusConflict)
	default:
		c, declined := s.act(r.Header.Get("Idempotency-Key"), string(body), lie)
		switch lie {
		case TimeOutAfter:
			s.hang(r)
		case CutAfter:
			panic(http.ErrAbortHandler)
		case FailAfter:
			http.Error(w, "out of order", http.StatusInternalServerError)
		default:
			if declined {
				http.Error(w, "the card was declined", http.StatusPaymentRequired)
				return
			}
			reply(w, c)
		}
	}
}

// hang keeps a request open until its client disconnects or the test calls Release.
func (s *Server) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.release:
	}
	panic(http.ErrAbortHandler)
}

// act charges or declines. For a known key it repeats the first result.
func (s *Server) act(key, body string, lie Lie) (c Charge, declined bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen, ok := s.responses[key]; ok && key != "" && lie != Forget && time.Now().Before(seen.until) {
		return seen.charge, seen.declined
	}
	if declined = lie == Decline; !declined {
		c = Charge{ID: fmt.Sprintf("ch_%d", len(s.charges)+1), Key: key, Body: body}
		s.charges = append(s.charges, c)
	}
	s.responses[key] = response{c, declined, time.Now().Add(s.memory)}
	return c, declined
}

func (s *Server) find(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	for _, c := range s.Charges() {
		if query.Has("body") && c.Body == query.Get("body") || query.Has("key") && c.Key == query.Get("key") {
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
