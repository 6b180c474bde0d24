package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/fault"
)

// carried returns why the sink can never publish m, or nil if it can or is no [pawl.Carrier].
func (r *Relay) carried(m pawl.Message) error {
	c, knows := r.cfg.Sink.(pawl.Carrier)
	if !knows {
		return nil
	}
	err := callback.Do("Carries", func() error { return c.Carries(m) })
	switch {
	case err == nil:
		return nil
	case callback.Panicked(err): // a panic may not recur: it is charged and retried
		return err
	}
	return pawl.Final(fmt.Errorf("the sink cannot carry it: %w", err))
}

// maxApart bounds the concurrent calls for excused events, and also those for batches.
const maxApart = 16

// deliver publishes messages and stores each result in its trial. An event that found the sink down
// before is published in its own call. If it makes calls fail, other events are then neither
// published again nor delayed by it.
func (r *Relay) deliver(ctx context.Context, ms []pawl.Message, trials []trial, batches map[int]*batch) {
	var together, apart []int
	var all sync.WaitGroup
	slots := make(chan struct{}, maxApart)
	for i, t := range trials {
		switch one := batches[i]; {
		case one != nil && len(one.ids) > 0:
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				r.publishBatch(ctx, one, &trials[i])
			})
		case t.separate:
			apart = append(apart, i)
		default:
			together = append(together, i)
		}
	}
	all.Go(func() { r.apart(ctx, ms, trials, apart) })
	r.call(ctx, ms, trials, together)
	all.Wait()
}

// errUntried is the error of an event that was not tried because the sink was found down.
var errUntried = errors.New("not tried: other events found the sink down")

// apart publishes each message in its own call until the sink turns out to be down.
func (r *Relay) apart(ctx context.Context, ms []pawl.Message, trials []trial, places []int) {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, maxApart)
	var mu sync.Mutex
	failed, accepted := 0, false
	for _, i := range places {
		slots <- struct{}{}
		mu.Lock()
		down := failed >= downBy && !accepted
		mu.Unlock()
		if down || ctx.Err() != nil {
			trials[i].err = errUntried
			<-slots
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			r.call(ctx, ms, trials, []int{i})
			mu.Lock()
			defer mu.Unlock()
			accepted = accepted || trials[i].err == nil
			if pawl.IsSinkDown(trials[i].err) {
				failed++
			}
		})
	}
}

// call makes one call of Publish. A crash after the sink accepted publishes again.
func (r *Relay) call(ctx context.Context, ms []pawl.Message, trials []trial, places []int) {
	if len(places) == 0 {
		return
	}
	some := make([]pawl.Message, len(places))
	for n, i := range places {
		some[n] = ms[i]
	}
	err := fault.At("outbox.publish.before")
	var errs []error
	if err == nil {
		errs, err = r.ask(ctx, some)
		_ = fault.At("outbox.publish.after")
		if err == nil && len(errs) != 0 && len(errs) != len(some) {
			err = fmt.Errorf("the sink answered %d errors for %d messages", len(errs), len(some))
		}
	}
	for n, i := range places {
		trials[i].alone = len(places) == 1
		switch {
		case err != nil:
			trials[i].err = err
		case len(errs) > 0:
			trials[i].err = errs[n]
		}
	}
}

// sinkGrace is how long a sink may take to return after its context ends. It must be less than the
// worker waits for the handler: the worker would charge all events of the call.
const sinkGrace = 2 * time.Second

func (r *Relay) ask(ctx context.Context, ms []pawl.Message) (errs []error, err error) {
	return askSink(ctx, func() []error { return r.cfg.Sink.Publish(ctx, ms) })
}

// askSink calls the sink. A panic becomes an error. It abandons a call that ignores its context.
func askSink[T any](ctx context.Context, call func() T) (T, error) {
	type reply struct {
		said T
		err  error
	}
	replies := make(chan reply, 1)
	go func() {
		var a reply
		a.said, a.err = callback.Get("", call)
		replies <- a
	}()
	over, stop := lateAfter(ctx, sinkGrace)
	defer stop()
	select {
	case a := <-replies:
		return a.said, a.err
	case <-over:
		var none T
		return none, errLeftBehind
	}
}
