package pawlsqs

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// Pauses between polls. A long poll that came back empty needs none: it has waited. The caller of Receive pauses after
// errors that pass; these are the cases that only the transport knows.
const (
	firstIdle = 50 * time.Millisecond // after an empty short poll, doubled up to
	lastIdle  = 2 * time.Second
	firstHelp = 5 * time.Second // after an error that needs an operator, doubled up to
	lastHelp  = time.Minute
)

// A pacer keeps polls apart. Messages reset it.
type pacer struct {
	short bool // polls do not wait for messages

	mu       sync.Mutex
	idle     time.Duration
	help     time.Duration
	earliest time.Time // of the next poll
}

// await pauses until the next poll may start, or ctx ends.
func (p *pacer) await(ctx context.Context) {
	p.mu.Lock()
	wait := time.Until(p.earliest)
	p.mu.Unlock()
	if wait > 0 {
		pace.Sleep(ctx, wait)
	}
}

// polled takes note of what a poll brought.
func (p *pacer) polled(messages int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pause time.Duration
	switch {
	case err != nil && needsOperator(err):
		p.help = min(max(2*p.help, firstHelp), lastHelp)
		pause = p.help
	case err != nil: // the caller's to wait
	case messages == 0 && p.short:
		p.help, p.idle = 0, min(max(2*p.idle, firstIdle), lastIdle)
		pause = p.idle
	default:
		p.help, p.idle = 0, 0
	}
	p.earliest = time.Now().Add(pace.Jittered(pause))
}
