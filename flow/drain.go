package flow

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
)

// abandonAfter is how long a cancelled handler may take to notice before Run leaves it behind. Its transaction is then
// decided by the database alone.
const abandonAfter = 5 * time.Second

// handleAll runs the handling goroutines until work is closed and done, or ctx's end plus Drain has passed.
func (f *Flow) handleAll(ctx context.Context, work <-chan pawl.Delivery, stopped <-chan struct{}) {
	handling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var handlers sync.WaitGroup
	for range f.atOnce() {
		handlers.Go(func() {
			for d := range work {
				if f.cfg.BatchHandler != nil {
					f.finishBatch(ctx, handling, f.batchFrom(d, work), stopped)
					continue
				}
				f.finishGroup(ctx, handling, d, stopped)
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
	if !within(done, abandonAfter) {
		f.giveBack(ctx, 0, f.groups.abandon()...)
	}
}

// finishGroup brings a delivery to its end, then those that stand behind it, until one goes back or stopping ends.
func (f *Flow) finishGroup(stopping, ctx context.Context, d pawl.Delivery, stopped <-chan struct{}) {
	for found := true; found; {
		r, wait := f.deliver(ctx, d)
		if !decided(r) {
			f.giveBack(ctx, wait, f.groups.disband(d)...)
			return
		}
		f.acknowledge(d, r, stopped)
		if d, found = f.groups.next(d); found && stopping.Err() != nil {
			f.giveBack(ctx, 0, f.groups.disband(d)...)
			return
		}
	}
}

// acknowledge hands a receipt on: to the source, or first to be proved.
func (f *Flow) acknowledge(d pawl.Delivery, r pawl.Receipt, stopped <-chan struct{}) {
	f.setbacks.Store(0)
	if receipt.Unproved(r) {
		select {
		case f.unproved <- unproved{d, r}:
		case <-stopped:
		}
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
