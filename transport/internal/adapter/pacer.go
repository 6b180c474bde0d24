package adapter

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// Pauses between requests, doubled from the first to the last. The caller of Receive pauses after
// errors that pass; these are the cases that only the transport knows.
const (
	firstIdle = 50 * time.Millisecond // after a request that brought nothing and did not wait
	lastIdle  = 2 * time.Second
	firstHelp = 5 * time.Second // after an error that needs an operator
	lastHelp  = time.Minute
)

// A Pacer keeps requests apart that cannot succeed, or bring nothing.
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

// Polled takes note of what became of a request: its error, whether that needs an operator, and
// whether it was idle, which means that it brought nothing and did not wait for anything.
func (p *Pacer) Polled(err error, needsOperator func(error) bool, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pause time.Duration
	switch {
	case err != nil && needsOperator(err):
		p.help = min(max(2*p.help, firstHelp), lastHelp)
		pause = p.help
	case err != nil: // the caller's to wait
	case idle:
		p.help, p.idle = 0, min(max(2*p.idle, firstIdle), lastIdle)
		pause = p.idle
	default:
		p.help, p.idle = 0, 0
	}
	p.earliest = time.Now().Add(pace.Jittered(pause))
}
