package pawlnats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Payloads that are published to the subject of an acknowledgement (NATS ADR-13).
var (
	ackAck      = []byte("+ACK")
	ackProgress = []byte("+WPI")
)

func ackNak(delay time.Duration) []byte {
	if delay <= 0 {
		return []byte("-NAK")
	}
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, delay.Nanoseconds())
}

// Ack acknowledges messages whose outcome the database already holds. It stops extending them in
// any case: if an acknowledgement is lost, the message comes again and is absorbed as a duplicate.
// JetStream does not confirm acknowledgements, so an error means that some could not be sent.
//
// Ack refuses invalid receipts and receipts of other sources with an error, but acknowledges the
// valid ones of the same call, because their outcome is safe.
//
// While the connection is broken, Ack acknowledges nothing: the stream may have been recreated, and
// the number of an old message may belong to a new one. A handle of a recreated stream or consumer
// acknowledges nothing. Stats.LostHandles counts it; it is no error.
func (s *Source) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	held, refused := ackable(rs, s)
	return errors.Join(refused, s.ack(ctx, held))
}

// ackable returns the handles of valid receipts of these sources, and an error about the others.
func ackable(rs []pawl.Receipt, of ...*Source) ([]*arrival, error) {
	return adapter.Receipts("nats.ack", rs, func(a *arrival) bool { return a != nil && slices.Contains(of, a.owner) })
}

func (s *Source) ack(ctx context.Context, held []*arrival) error {
	switch {
	case s.finished.Load():
		return &pawl.Error{Op: "nats.ack", Err: errFinished}
	case len(held) == 0:
		return nil
	}
	s.letGo(held) // an extension in flight does no harm: the message is removed anyway
	if err := fault.At("nats.ack.before"); err != nil {
		s.counters.ackFailures.Add(int64(len(held)))
		return wrap("nats.ack", s.name(), err)
	}
	sent, dead, err := s.publish(ctx, held, ackAck)
	s.counters.acked.Add(int64(sent))
	s.report.Count(ctx, pawl.EventAcknowledged, "nats.ack", sent)
	s.lost(ctx, "nats.ack", dead)
	if err != nil {
		left := len(held) - sent - dead
		s.counters.ackFailures.Add(int64(left))
		return s.left("nats.ack", "acknowledged", left, len(held), err,
			"no action needed: they come again after AckWait and are absorbed as duplicates")
	}
	return fault.At("nats.ack.after")
}

// publish sends word for each handle, and counts handles of an earlier stream or consumer as dead.
func (s *Source) publish(ctx context.Context, as []*arrival, word []byte) (sent, dead int, err error) {
	b, err := s.bind(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, a := range as {
		if a.identity != b.identity {
			dead++
			continue
		}
		if err := s.conn.Publish(a.reply, word); err != nil {
			return sent, dead, err
		}
		sent++
	}
	return sent, dead, nil
}

func (s *Source) left(op, done string, left, all int, err error, hint string) error {
	if known, ok := wrap(op, s.name(), err).(*pawl.Error); ok && known.Hint != "" {
		err, hint = known.Err, known.Hint
	}
	return &pawl.Error{Op: op, Err: fmt.Errorf("%d of %d messages not %s: %w", left, all, done, err), Hint: hint}
}

// Release returns deliveries to JetStream, which delivers them again after delay; 0 or less means
// at once. It returns once the server has read the request.
//
// Stats.LostHandles counts deliveries that were already delivered again, or whose stream or
// consumer was recreated; they are no error. Release refuses deliveries of other sources with an
// error, but releases the others of the same call.
//
// With MaxAckPending 1, JetStream delivers nothing else before a released message.
func (s *Source) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	if len(ds) == 0 {
		return nil
	}
	held, refused := releasable(ds, s)
	return errors.Join(refused, s.release(ctx, delay, held))
}

// releasable returns the handles of deliveries of these sources, and an error about the others.
func releasable(ds []pawl.Delivery, of ...*Source) ([]*arrival, error) {
	return adapter.Deliveries("nats.release", ds, func(a *arrival) bool { return a != nil && slices.Contains(of, a.owner) })
}

func (s *Source) release(ctx context.Context, delay time.Duration, held []*arrival) error {
	if s.finished.Load() {
		return &pawl.Error{Op: "nats.release", Err: errFinished}
	}
	live, stored := s.letGo(held)
	for _, over := range stored {
		select { // an extension sent after the release would override the delay
		case <-over:
		case <-ctx.Done():
		}
	}
	sent, dead, err := s.publish(ctx, live, ackNak(delay))
	if err == nil && sent > 0 {
		err = s.flush(ctx)
	}
	s.lost(ctx, "nats.release", dead+len(held)-len(live))
	if err != nil {
		return s.left("nats.release", "released", len(live)-dead, len(held), err, "no action needed: they come again after AckWait")
	}
	s.counters.released.Add(int64(sent))
	s.report.Count(ctx, pawl.EventReleased, "nats.release", sent)
	return nil
}
