package pawlnats

import (
	"context"
	"sync/atomic"

	"github.com/pawl-go/pawl"
)

// Stats counts since Open, except Held, which is a current value.
type Stats struct {
	Polls       int64 // pull requests that JetStream answered
	EmptyPolls  int64 // those of Polls that brought no message
	PollErrors  int64 // pull requests without an answer, which Polls does not include
	Received    int64 // messages received
	Redelivered int64 // messages that JetStream had delivered before, to any process
	Acked       int64 // messages whose acknowledgement was sent; JetStream confirms none
	AckFailures int64 // messages whose acknowledgement could not be sent: they come again
	Released    int64 // messages returned to JetStream, to come again at once or after a delay
	Extended    int64 // extensions of AckWait, one a message
	// LostHandles counts messages that this process can no longer settle: JetStream has delivered
	// them again, or the stream or consumer was recreated.
	LostHandles int64
	Reconnects  int64 // reconnects forced by this source, not those of the NATS client
	Held        int   // messages received and not settled
}

type counters struct {
	polls, emptyPolls, pollErrors, received, redelivered, acked, ackFailures, released, extended, lostHandles, reconnects atomic.Int64
}

// Stats returns the counts since Open.
func (s *Source) Stats() Stats {
	c := &s.counters
	return Stats{
		Polls: c.polls.Load(), EmptyPolls: c.emptyPolls.Load(), PollErrors: c.pollErrors.Load(),
		Received: c.received.Load(), Redelivered: c.redelivered.Load(), Acked: c.acked.Load(), AckFailures: c.ackFailures.Load(),
		Released: c.released.Load(), Extended: c.extended.Load(), LostHandles: c.lostHandles.Load(), Reconnects: c.reconnects.Load(),
		Held: len(s.allHeld()),
	}
}

// lost counts and reports messages that this process cannot settle any more: JetStream has
// delivered them again, or the stream or consumer was recreated.
func (s *Source) lost(ctx context.Context, op string, n int) {
	s.counters.lostHandles.Add(int64(n))
	s.report.Count(ctx, pawl.EventHandleLost, op, n)
}

func (s Stats) plus(o Stats) Stats {
	return Stats{
		Polls: s.Polls + o.Polls, EmptyPolls: s.EmptyPolls + o.EmptyPolls, PollErrors: s.PollErrors + o.PollErrors,
		Received: s.Received + o.Received, Redelivered: s.Redelivered + o.Redelivered, Acked: s.Acked + o.Acked,
		AckFailures: s.AckFailures + o.AckFailures, Released: s.Released + o.Released, Extended: s.Extended + o.Extended,
		LostHandles: s.LostHandles + o.LostHandles, Reconnects: s.Reconnects + o.Reconnects, Held: s.Held + o.Held,
	}
}
