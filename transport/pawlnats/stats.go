package pawlnats

import (
	"context"
	"sync/atomic"

	"github.com/pawl-go/pawl"
)

// Stats counts since Open, except Held, which is a current value.
type Stats struct {
	Polls       int64 // pull requests answered
	EmptyPolls  int64 // pull requests answered without a message
	PollErrors  int64 // pull requests that failed
	Received    int64 // messages received
	Redelivered int64 // messages that JetStream had delivered before, to any process
	Acked       int64 // acknowledgements sent, which JetStream does not confirm
	AckFailures int64 // acknowledgements not sent: their messages come again as duplicates
	Released    int64 // messages released
	Extended    int64 // extensions of AckWait sent
	LostHandles int64 // delivered again while held, or stream or consumer recreated
	Reconnects  int64 // reconnects by this source because the server did not answer
	Held        int   // messages held now
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

// report emits an event for n messages, unless n is 0.
func (s *Source) report(ctx context.Context, kind pawl.EventKind, op string, n int) {
	if n > 0 {
		s.emit(ctx, pawl.Event{Kind: kind, Op: op, Count: n})
	}
}

// lost counts and reports messages that are no longer held.
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
