package adapter

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// Pauses between requests double from the first to the last value. The caller of Receive pauses
// after errors that pass. These are the cases that only the transport knows.
const (
	firstIdle = 50 * time.Millisecond // after a request that returned nothing without waiting
	lastIdle  = 2 * time.Second
	firstHelp = 5 * time.Second // after an error that needs an operator
	lastHelp  = time.Minute
)

// A Pacer delays requests that cannot succeed or return nothing.
type Pacer struct {
	mu       sync.Mutex
	idle     time.Duration
	help     time.Duration
	earliest time.Time // of the next request
}

// Await pauses until the next request may start, or ctx ends.
func (p *Pacer) Await(ctx context.Context) {
	p.mu.Lock()
	wait := time.Until(p.earliest)
	p.mu.Unlock()
	if wait > 0 {
		pace.Sleep(ctx, wait)
	}
}

// Polled records the result of a request: its error, and whether that needs an operator. idle means
// that the request returned nothing without waiting.
func (p *Pacer) Polled(err error, needsOperator func(error) bool, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pause time.Duration
	switch {
	case err != nil && needsOperator(err):
		p.help = min(max(2*p.help, firstHelp), lastHelp)
		pause = p.help
	case err != nil: // the caller waits
	case idle:
		p.help, p.idle = 0, min(max(2*p.idle, firstIdle), lastIdle)
		pause = p.idle
	default:
		p.help, p.idle = 0, 0
	}
	p.earliest = time.Now().Add(pace.Jittered(pause))
}
