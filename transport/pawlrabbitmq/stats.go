package pawlrabbitmq

import (
	"context"
	"sync/atomic"

	"github.com/pawl-go/pawl"
)

// Stats count since Open, except Held and Prefetched.
type Stats struct {
	Sessions    int64 // channels that consumed, the first included
	Received    int64 // deliveries handed out
	Redelivered int64 // of them, those that RabbitMQ had delivered before, to any process
	Again       int64 // of them, those that were given back here and came again from memory
	Acked       int64 // messages acknowledged; RabbitMQ has read it
	AckFailures int64 // acknowledgements that RabbitMQ may not have read: their messages return and are absorbed
	Released    int64 // deliveries given back
	LostHandles int64 // deliveries whose session had ended when they were settled: they return
	Held        int   // deliveries handed out and not settled now
	Prefetched  int   // deliveries that wait in memory now
}

type counters struct {
	sessions, received, redelivered, again, acked, ackFailures, released, lostHandles atomic.Int64
}

// Stats returns the counts so far.
func (s *Source) Stats() Stats {
	c := &s.counters
	all := Stats{Sessions: c.sessions.Load(), Received: c.received.Load(), Redelivered: c.redelivered.Load(), Again: c.again.Load(), Acked: c.acked.Load(),
		AckFailures: c.ackFailures.Load(), Released: c.released.Load(), LostHandles: c.lostHandles.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	all.Held = s.held
	if s.now != nil {
		all.Prefetched = len(s.now.arrivals) - s.now.out
	}
	return all
}

// report emits an event that stands for n messages, if there are any.
func (s *Source) report(ctx context.Context, kind pawl.EventKind, op string, n int) {
	if n > 0 {
		s.emit(ctx, pawl.Event{Kind: kind, Op: op, Count: n})
	}
}

// lost counts deliveries whose session has ended.
func (s *Source) lost(ctx context.Context, op string, n int) {
	s.counters.lostHandles.Add(int64(n))
	s.report(ctx, pawl.EventHandleLost, op, n)
}

func (s *Source) emit(ctx context.Context, e pawl.Event) {
	e.Scope = s.queue
	s.config.Hooks.Emit(context.WithoutCancel(ctx), e)
}
