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

// What is published to the subject of an acknowledgement (ADR-13 of NATS).
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

// Ack acknowledges messages whose outcome the database already holds. They are not extended any more, whatever comes: a message whose
// acknowledgement is lost returns and is absorbed as a duplicate. JetStream answers no acknowledgement, so an error means that they could not
// be sent.
//
// Receipts that are not valid, or of another source, are refused with an error; the valid ones beside them are still acknowledged, as their
// outcome is safe. While the connection is broken nothing is acknowledged: it is not known whether the stream behind it is still the same,
// and in one that was made anew the number of an old message is that of a new one. A handle of a stream or consumer that was made anew is
// counted in Stats.LostHandles, acknowledges nothing and is no error.
func (s *Source) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	held, refused := ackable(rs, s)
	if s.finished.Load() {
		return errors.Join(refused, &pawl.Error{Op: "nats.ack", Err: errFinished})
	}
	return errors.Join(refused, s.ack(ctx, held))
}

// ackable are the handles behind valid receipts of one of these sources, and an error that counts the others.
func ackable(rs []pawl.Receipt, of ...*Source) (held []*arrival, err error) {
	for _, r := range rs {
		if a, ours := r.Handle().(*arrival); ours && a != nil && r.Valid() && slices.Contains(of, a.owner) {
			held = append(held, a)
		}
	}
	if refused := len(rs) - len(held); refused > 0 {
		err = &pawl.Error{Op: "nats.ack", Code: pawl.CodeArgumentInvalid,
			Err:  fmt.Errorf("%d of %d receipts refused: not from a commit of a delivery of this source", refused, len(rs)),
			Hint: "acknowledge with the receipts that the commit returned"}
	}
	return held, err
}

func (s *Source) ack(ctx context.Context, held []*arrival) error {
	if len(held) == 0 {
		return nil
	}
	s.letGo(held) // an extension still in flight does no harm: the message is gone all the same
	if err := fault.At("nats.ack.before"); err != nil {
		s.counters.ackFailures.Add(int64(len(held)))
		return wrap("nats.ack", s.name(), err)
	}
	sent, dead, err := s.publish(ctx, held, ackAck)
	s.counters.acked.Add(int64(sent))
	s.report(ctx, pawl.EventAcknowledged, "nats.ack", sent)
	s.lost(ctx, "nats.ack", dead)
	if err != nil {
		left := len(held) - sent - dead
		s.counters.ackFailures.Add(int64(left))
		return s.left("nats.ack", "acknowledged", left, len(held), err,
			"nothing to do: they return after AckWait and are absorbed as duplicates")
	}
	return fault.At("nats.ack.after")
}

// publish sends one word about each handle, and counts those that belong to a stream or consumer that is no more.
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

// Release gives deliveries back. JetStream delivers them again after delay; 0 and less mean at once. A delivery that has been delivered again
// already, or whose stream or consumer was made anew, is counted in Stats.LostHandles and is no error. Deliveries of another source are
// refused with an error, the others beside them are released. Release returns once the server has read it.
//
// With MaxAckPending 1, JetStream delivers nothing else before a message that was given back.
func (s *Source) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	if len(ds) == 0 {
		return nil
	}
	held, refused := releasable(ds, s)
	if s.finished.Load() {
		return errors.Join(refused, &pawl.Error{Op: "nats.release", Err: errFinished})
	}
	return errors.Join(refused, s.release(ctx, delay, held))
}

// releasable are the handles of deliveries of one of these sources, and an error that counts the others.
func releasable(ds []pawl.Delivery, of ...*Source) (held []*arrival, err error) {
	for _, d := range ds {
		if a, ours := d.Handle.(*arrival); ours && a != nil && slices.Contains(of, a.owner) {
			held = append(held, a)
		}
	}
	if refused := len(ds) - len(held); refused > 0 {
		err = adapter.BadArgument("nats.release", "%d of %d deliveries are not of this source", refused, len(ds))
	}
	return held, err
}

func (s *Source) release(ctx context.Context, delay time.Duration, held []*arrival) error {
	live, stored := s.letGo(held)
	for _, over := range stored {
		select { // an extension sent behind our word would overrule the delay
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
		return s.left("nats.release", "released", len(live)-dead, len(held), err, "nothing to do: they return after AckWait")
	}
	s.counters.released.Add(int64(sent))
	s.report(ctx, pawl.EventReleased, "nats.release", sent)
	return nil
}
