package flow

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

// abandonAfter is how long a cancelled handler may take to notice before Run leaves it behind. Its transaction is then
// decided by the database alone.
const abandonAfter = 5 * time.Second

// handleAll runs the handling goroutines until work is closed and done, or ctx's end plus Drain has passed.
func (f *Flow) handleAll(ctx context.Context, work <-chan pawl.Delivery, stopped <-chan struct{}) {
	handling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var handlers sync.WaitGroup
	for range f.cfg.Concurrency {
		handlers.Go(func() {
			for d := range work {
				f.finish(handling, d, stopped)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		handlers.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	if within(done, f.cfg.Drain) {
		return
	}
	cancel()
	within(done, abandonAfter)
}

// finish brings one delivery to an acknowledgement or back to the source.
func (f *Flow) finish(ctx context.Context, d pawl.Delivery, stopped <-chan struct{}) {
	r, wait := f.deliver(ctx, d)
	if !r.Valid() {
		f.giveBack(ctx, d, wait)
		return
	}
	select {
	case f.acks <- r:
	case <-stopped: // Run has returned; the message comes again and is absorbed
	}
}

func within(done <-chan struct{}, limit time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}
