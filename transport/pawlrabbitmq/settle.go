package pawlrabbitmq

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

// Ack acknowledges messages whose outcome the database holds. RabbitMQ does not confirm
// acknowledgements. So Ack sends a request after them, whose reply shows that they were read.
// Without a reply Ack returns an error, and the messages return and are absorbed.
//
// If the session of a delivery has ended, nothing is sent, because RabbitMQ redelivers it. It is
// counted in Stats.LostHandles and is not an error. Ack refuses receipts that are invalid, of
// another source, or settled before. The other receipts of the call are still acknowledged.
func (s *Source) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	const op = "rabbitmq.ack"
	handles, _ := adapter.Receipts(op, rs, func(h *handle) bool { return h != nil })
	refused := len(rs) - len(handles)
	acked, dead, left := 0, 0, error(nil)
	for one, mine := range adapter.By(handles, func(h *handle) *session { return h.session }) {
		n, lost, again, err := s.ackIn(ctx, one, mine)
		acked, dead, refused, left = acked+n, dead+lost, refused+again, errors.Join(left, err)
	}
	s.counters.acked.Add(int64(acked))
	s.report.Count(ctx, pawl.EventAcknowledged, op, acked)
	s.lost(ctx, op, dead)
	if refused > 0 {
		left = errors.Join(left, &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid,
			Err:  fmt.Errorf("%d of %d receipts refused: not from a commit of a delivery of this source, or settled before", refused, len(rs)),
			Hint: "acknowledge once, with the receipts that the commit returned"})
	}
	return left
}

// ackIn acknowledges deliveries of one session. The oldest settled ones go in one frame, the others
// in one each. It returns the numbers of acknowledged, lost, and previously settled ones.
func (s *Source) ackIn(ctx context.Context, one *session, handles []*handle) (acked, lost, again int, err error) {
	one.frames.Lock()
	defer one.frames.Unlock()
	upTo, single, lost, again, err := s.noteAcked(one, handles)
	if err != nil {
		return 0, lost, again, err
	}
	if err := fault.At("rabbitmq.ack.before"); err != nil {
		return 0, lost, again, err
	}
	acked = len(handles) - lost - again
	if acked == 0 {
		return 0, lost, again, nil
	}
	one.acked = true
	if err := do(ctx, func() error { return s.writeAcks(one, upTo, single) }); err != nil {
		s.counters.ackFailures.Add(int64(acked))
		s.fail(one, err)
		return 0, lost, again, &pawl.Error{Op: "rabbitmq.ack", Err: fmt.Errorf("%d messages not acknowledged: %w", acked, err),
			Hint: "nothing to do: they return and are absorbed as duplicates"}
	}
	return acked, lost, again, fault.At("rabbitmq.ack.after")
}

// writeAcks acknowledges all tags up to upTo, unless it is 0, and single ones. The reply to Qos,
// which changes nothing, shows that RabbitMQ has read them.
func (s *Source) writeAcks(one *session, upTo uint64, single []uint64) error {
	if upTo > 0 {
		if err := one.ch.Ack(upTo, true); err != nil {
			return err
		}
	}
	for _, tag := range single {
		if err := one.ch.Ack(tag, false); err != nil {
			return err
		}
	}
	return one.ch.Qos(s.config.Prefetch, 0, false)
}

// noteAcked marks deliveries as settled. Up to upTo, if it is not 0, all of the session are
// settled, the last one by this call, so one frame acknowledges them. single are the other tags.
func (s *Source) noteAcked(one *session, handles []*handle) (upTo uint64, single []uint64, lost, again int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return 0, nil, 0, 0, &pawl.Error{Op: "rabbitmq.ack", Err: errFinished}
	}
	for _, h := range handles {
		switch {
		case !h.valid():
			again++
			continue
		case one.gone:
			lost++
		}
		s.takeBack(h.arrival, settled)
	}
	if one.gone {
		return 0, nil, lost, again, nil
	}
	first := 0
	for first < len(one.arrivals) && one.arrivals[first].state == settled {
		first++
	}
	if first > 1 {
		upTo = one.arrivals[first-1].tag
	} else {
		first = 0
	}
	for _, a := range one.arrivals[first:] {
		if a.state == settled {
			single = append(single, a.tag)
		}
	}
	s.forgetSettled(one)
	return upTo, single, lost, again, nil
}

// forgetSettled removes settled arrivals. The caller holds s.mu.
func (s *Source) forgetSettled(one *session) {
	one.arrivals = slices.DeleteFunc(one.arrivals, func(a *arrival) bool { return a.state == settled })
	s.closeSettled(one)
}

// Release returns deliveries. They wait in memory for the delay and then come again to this source.
// RabbitMQ is not informed, so its delivery limit is not used up. If this source has stopped
// receiving, they go back to the queue at once, or with an order once all other deliveries are
// settled. Release refuses deliveries of another source, and those settled before.
//
// With an order, release a delivery and those behind it in one call.
func (s *Source) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	const op = "rabbitmq.release"
	handles, _ := adapter.Deliveries(op, ds, func(h *handle) bool { return h != nil })
	released, lost, draining, err := s.noteReleased(delay, handles)
	if err != nil {
		return err
	}
	// In the background, because a write has no context.
	for one := range draining {
		s.closing.Go(func() { s.giveBackRest(one) })
	}
	s.counters.released.Add(int64(released))
	s.report.Count(ctx, pawl.EventReleased, op, released)
	s.lost(ctx, op, lost)
	if refused := len(ds) - released - lost; refused > 0 {
		return adapter.BadArgument(op, "%d of %d deliveries are not of this source, or were settled before", refused, len(ds))
	}
	return nil
}

// noteReleased puts deliveries back into memory, and returns the affected draining sessions.
func (s *Source) noteReleased(delay time.Duration, handles []*handle) (released, lost int, draining map[*session]bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return 0, 0, nil, &pawl.Error{Op: "rabbitmq.release", Err: errFinished}
	}
	due := time.Now().Add(max(delay, 0))
	draining = map[*session]bool{}
	for _, h := range handles {
		switch one := h.session; {
		case !h.valid():
			continue
		case one.gone:
			lost++
			s.takeBack(h.arrival, dropped)
		default:
			released++
			h.due = due
			s.takeBack(h.arrival, ready)
			if one.draining {
				draining[one] = true
			}
		}
	}
	s.broadcast()
	return released, lost, draining, nil
}

// giveBackRest requeues a draining session's deliveries that are not out: with an order by closing
// its channel once all others are settled, without one at once.
func (s *Source) giveBackRest(one *session) {
	one.frames.Lock()
	defer one.frames.Unlock()
	var tags []uint64
	s.mu.Lock()
	if s.config.OrderingKey == nil && one.out > 0 && !one.gone && !one.closing {
		for _, a := range one.arrivals {
			if a.state == ready {
				a.state = settled
				tags = append(tags, a.tag)
			}
		}
		s.forgetSettled(one)
	} else {
		s.closeSettled(one)
	}
	s.mu.Unlock()
	for _, tag := range tags {
		if err := one.ch.Nack(tag, false, true); err != nil {
			s.fail(one, err)
			return
		}
	}
}

// requeue takes back deliveries that Receive cannot return, because the context ended.
func (s *Source) requeue(ds []pawl.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		h := d.Handle.(*handle)
		h.handouts--
		s.takeBack(h.arrival, ready)
	}
}
