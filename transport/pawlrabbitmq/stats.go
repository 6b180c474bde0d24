package pawlrabbitmq

import (
	"context"
	"sync/atomic"

	"github.com/pawl-go/pawl"
)

// Stats holds counts since Open, and the current Held and Prefetched.
type Stats struct {
	Sessions    int64 // channels that consumed, including the first
	Received    int64 // deliveries returned by Receive
	Redelivered int64 // of them, those delivered before, to any process
	Again       int64 // of them, those released here and returned again
	Acked       int64 // messages acknowledged and read by RabbitMQ
	// AckFailures are acknowledgements that RabbitMQ may not have read. Their messages return and
	// are absorbed.
	AckFailures int64
	Released    int64 // deliveries released
	// LostHandles are deliveries whose session had ended when they were settled. They return.
	LostHandles int64
	Held        int // deliveries that are out now: received and not settled
	Prefetched  int // deliveries waiting in memory now
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

func (s *Source) lost(ctx context.Context, op string, n int) {
	s.counters.lostHandles.Add(int64(n))
	s.report.Count(ctx, pawl.EventHandleLost, op, n)
}
