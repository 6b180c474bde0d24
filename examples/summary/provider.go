package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"
)

const (
	providerAddress = "localhost:9100"
	price           = 20 // cents, for a summary
)

// A provider is a stub of a language model: it is slow, and bills each key once.
type provider struct {
	think func() // takes the model's time

	mu       sync.Mutex
	requests int
	answers  map[string]string // by key; each is billed
}

// provide runs the stub until ctx ends.
func provide(ctx context.Context) error {
	p := &provider{think: func() { time.Sleep(10 * time.Second) }}
	server := &http.Server{Addr: providerAddress, Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	log.Printf("summarizing at http://%s/summaries; the bill is at http://%s/bill", providerAddress, providerAddress)
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

func (p *provider) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /summaries", p.summarize)
	mux.HandleFunc("GET /bill", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, p.bill()) })
	return mux
}

// summarize bills the key when the request arrives, as a model starts to work then, also if the
// client has gone before the answer.
func (p *provider) summarize(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	key := r.Header.Get("Idempotency-Key")
	if err != nil || key == "" {
		http.Error(w, "a body and an Idempotency-Key are required", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.requests++
	answer, known := p.answers[key]
	if !known {
		if p.answers == nil {
			p.answers = map[string]string{}
		}
		answer = fmt.Sprintf("%.20s… in short", body)
		p.answers[key] = answer
	}
	p.mu.Unlock()
	log.Printf("key %s: %s", key, map[bool]string{true: "known, not billed again", false: "billed"}[known])
	if !known {
		p.think()
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"summary": answer})
}

func (p *provider) bill() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("requests %d, billed %d, cents %d", p.requests, len(p.answers), price*len(p.answers))
}
