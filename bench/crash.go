package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// crashLease is the lease in the line without presence.
const crashLease = 3 * time.Second

const gate = -1 // a payload's At: the job keeps its worker busy until released

// crash measures the time from the SIGKILL of a process in the middle of a job to the start of the
// job's handler in another process. That process has been running for a while.
func crash(variant string, t task) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		var (
			busy, open = make(chan struct{}), make(chan struct{})
			started    = make(chan time.Time, 1)
			killed     atomic.Bool
		)
		t.form, t.polite, t.inHand, t.ended = noop, true, 1, func(int) {}
		t.started = func(p payload) {
			switch {
			case p.At == gate:
				busy <- struct{}{}
				<-open
			case killed.Load():
				started <- time.Now()
			}
		}
		stop, err := b.work(ctx, t)
		if err != nil {
			return r, err
		}
		defer stop()
		time.Sleep(s.settled)
		var took []float64
		for range s.kills {
			killed.Store(false)
			at, err := b.murder(ctx, variant, busy, open, &killed)
			if err != nil {
				return r, err
			}
			select {
			case again := <-started:
				took = append(took, float64(again.Sub(at).Microseconds())/1000)
			case <-time.After(60 * time.Second):
				return r, fmt.Errorf("the job was not run again within a minute")
			}
		}
		r.Value, r.P99, r.Count = median(took), quantile(took, 0.99), len(took)
		return r, nil
	}
}

// murder makes a separate process claim a job, kills it, and returns the time of the kill. The
// successor is busy meanwhile.
func (b *bed) murder(ctx context.Context, variant string, busy, open chan struct{}, killed *atomic.Bool) (at time.Time, err error) {
	if err := b.enqueue(ctx, payload{At: gate}); err != nil {
		return at, err
	}
	<-busy
	if err := b.enqueue(ctx, payload{At: time.Now().UnixNano()}); err != nil {
		return at, err
	}
	victim, err := raise(ctx, variant, b.url)
	if err != nil {
		return at, err
	}
	open <- struct{}{}
	killed.Store(true)
	at = time.Now()
	victim.bury()
	return at, nil
}
