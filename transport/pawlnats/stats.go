package pawlnats

import (
	"context"
	"sync/atomic"

	"github.com/pawl-go/pawl"
)

// Stats count since Open, except Held.
type Stats struct {
	Polls       int64 // pull requests answered
	EmptyPolls  int64 // of them, those without a message
	PollErrors  int64 // pull requests that failed
	Received    int64 // messages received
	Redelivered int64 // of them, those that JetStream had delivered before, to any process
	Acked       int64 // acknowledgements sent; JetStream answers none
	AckFailures int64 // acknowledgements not sent: their messages return and are absorbed
	Released    int64 // messages given back
	Extended    int64 // leases extended
	LostHandles int64 // messages that were delivered again while held, or whose stream or consumer was made anew
	Reconnects  int64 // reconnects that this source asked for, as the server had stopped answering
	Held        int   // messages being kept now
}

type counters struct {
	polls, emptyPolls, pollErrors, received, redelivered, acked, ackFailures, released, extended, lostHandles, reconnects atomic.Int64
}

// Stats returns the counts so far.
func (s *Source) Stats() Stats {
	c := &s.counters
	return Stats{
		Polls: c.polls.Load(), EmptyPolls: c.emptyPolls.Load(), PollErrors: c.pollErrors.Load(),
		Received: c.received.Load(), Redelivered: c.redelivered.Load(), Acked: c.acked.Load(), AckFailures: c.ackFailures.Load(),
		Released: c.released.Load(), Extended: c.extended.Load(), LostHandles: c.lostHandles.Load(), Reconnects: c.reconnects.Load(),
		Held: s.held.count(),
	}
}

// report emits an event that stands for n messages, if there are any.
func (s *Source) report(ctx context.Context, kind pawl.EventKind, op string, n int) {
	if n > 0 {
		s.emit(ctx, pawl.Event{Kind: kind, Op: op, Count: n})
	}
}

// lost counts messages that are not held any more.
func (s *Source) lost(ctx context.Context, op string, n int) {
	s.counters.lostHandles.Add(int64(n))
	s.report(ctx, pawl.EventHandleLost, op, n)
}

func (s *Source) emit(ctx context.Context, e pawl.Event) {
	e.Scope = s.name()
	s.config.Hooks.Emit(context.WithoutCancel(ctx), e)
}

func (s Stats) plus(o Stats) Stats {
	return Stats{
		Polls: s.Polls + o.Polls, EmptyPolls: s.EmptyPolls + o.EmptyPolls, PollErrors: s.PollErrors + o.PollErrors,
		Received: s.Received + o.Received, Redelivered: s.Redelivered + o.Redelivered, Acked: s.Acked + o.Acked,
		AckFailures: s.AckFailures + o.AckFailures, Released: s.Released + o.Released, Extended: s.Extended + o.Extended,
		LostHandles: s.LostHandles + o.LostHandles, Reconnects: s.Reconnects + o.Reconnects, Held: s.Held + o.Held,
	}
}
