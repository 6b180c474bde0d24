package pawlrabbitmq

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// Pauses after an error that needs an operator, doubled from the first to the last. After other errors the caller of Receive pauses.
const (
	firstHelp = 5 * time.Second
	lastHelp  = time.Minute
)

// A pacer keeps requests apart that cannot succeed.
type pacer struct {
	mu       sync.Mutex
	help     time.Duration
	earliest time.Time // of the next request
}

// await pauses until the next request may start, or ctx ends.
func (p *pacer) await(ctx context.Context) {
	p.mu.Lock()
	wait := time.Until(p.earliest)
	p.mu.Unlock()
	if wait > 0 {
		pace.Sleep(ctx, wait)
	}
}

// polled takes note of what became of a request.
func (p *pacer) polled(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil || !needsOperator(err) {
		p.help = 0
		return
	}
	p.help = min(max(2*p.help, firstHelp), lastHelp)
	p.earliest = time.Now().Add(pace.Jittered(p.help))
}
