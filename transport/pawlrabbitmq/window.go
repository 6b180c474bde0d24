package pawlrabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

type state int

const (
	ready   state = iota // waits in memory, perhaps for a delay
	handed               // returned by Receive
	settled              // acknowledged, or requeued
	dropped              // the session ended; RabbitMQ has requeued it
)

// An arrival is one delivery by RabbitMQ. Its fields are guarded by Source.mu.
type arrival struct {
	session  *session
	tag      uint64
	d        pawl.Delivery
	state    state
	due      time.Time // of a ready one: when it may be received
	handouts int       // times that Receive returned it
}

// A handle is the Delivery.Handle of one return of an arrival by Receive.
type handle struct {
	*arrival
	handout int
}

func (h *handle) valid() bool { return h.state == handed && h.handout == h.handouts }

func (s *Source) arrived(one *session, d amqp.Delivery) {
	a := &arrival{session: one, tag: d.DeliveryTag, d: s.delivery(&d)}
	s.mu.Lock()
	if one.gone {
		s.mu.Unlock()
		return
	}
	one.arrivals = append(one.arrivals, a)
	late := one.draining && s.config.OrderingKey == nil && one.out > 0
	if s.now == one {
		s.broadcast()
	}
	s.mu.Unlock()
	if late { // it was on its way when the consumer ended
		s.giveBackRest(one)
	}
}

func (s *Source) delivery(d *amqp.Delivery) pawl.Delivery {
	to := pawl.Delivery{
		MessageID:  d.MessageId,
		Payload:    d.Body,
		Attributes: attributesOf(d),
		Receives:   receives(d),
	}
	if d.Timestamp.Unix() > 0 { // the sender's clock; SentAt must be the broker's
		to.ProducedAt = d.Timestamp
	}
	if to.MessageID == "" {
		to.MessageID = bodyID(d.Body)
	}
	if to.Payload == nil {
		to.Payload = []byte{}
	}
	s.identify(d, &to)
	return to
}

// receives returns how often RabbitMQ has delivered a message, this time included. Since 4.3
// x-acquired-count has it, and x-delivery-count counts failures only. A classic queue reports only
// whether it delivered the message before.
func receives(d *amqp.Delivery) int {
	if _, there := d.Headers["x-acquired-count"]; there {
		return numberOf(d.Headers["x-acquired-count"]) + 1
	}
	n := numberOf(d.Headers["x-delivery-count"]) + 1
	if d.Redelivered {
		n = max(n, 2)
	}
	return n
}

// take returns up to most arrivals in the order of their tags. It skips an ordering key while an
// earlier delivery of it is out or waits for its delay. If nothing is left, next is when the next
// delay ends, or zero. The caller holds s.mu.
func (s *Source) take(most int) (ds []pawl.Delivery, next time.Time) {
	if s.now == nil {
		return nil, next
	}
	now := time.Now()
	held, mine := map[string]bool{}, map[string]bool{}
	for _, a := range s.now.arrivals {
		if len(ds) == most {
			break
		}
		key := a.d.OrderingKey
		switch {
		case a.state != ready, key != "" && (held[key] || s.out[key] > 0 && !mine[key]):
			continue
		case a.due.After(now):
			if next.IsZero() || a.due.Before(next) {
				next = a.due
			}
			held[key] = key != ""
			continue
		}
		ds = append(ds, s.hand(a))
		mine[key] = key != ""
	}
	return ds, next
}

// hand marks an arrival as handed out. The caller holds s.mu.
func (s *Source) hand(a *arrival) pawl.Delivery {
	a.state = handed
	a.handouts++
	a.session.out++
	s.held++
	if a.d.OrderingKey != "" {
		s.out[a.d.OrderingKey]++
	}
	d := a.d
	d.Receives += a.handouts - 1
	d.Handle = &handle{a, a.handouts}
	return d
}

// takeBack moves an arrival out of state handed. The caller holds s.mu.
func (s *Source) takeBack(a *arrival, to state) {
	a.state = to
	a.session.out--
	s.held--
	if key := a.d.OrderingKey; key != "" {
		if s.out[key]--; s.out[key] == 0 {
			delete(s.out, key)
			s.broadcast()
		}
	}
}

// StillHeld reports whether the delivery's session lives. If not, RabbitMQ redelivers the message.
func (s *Source) StillHeld(d pawl.Delivery) bool {
	h, ours := d.Handle.(*handle)
	if !ours {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.valid() {
		return false
	}
	if h.session.gone || s.finished || h.session.ch.IsClosed() {
		s.takeBack(h.arrival, dropped)
		s.counters.lostHandles.Add(1)
		return false
	}
	return true
}

// Receive returns up to max deliveries from memory, or waits up to Config.Wait for them. Until Ack,
// or until the connection is lost, RabbitMQ gives a delivery to no other consumer.
//
// If the connection is lost, Receive returns an error once. Each later call tries to reconnect, so
// pause between calls, as package consumer does. After an error that needs an operator (a missing
// queue, permissions), the next call itself waits, 5 s to a minute.
//
// When ctx ends, Receive returns the prefetched messages to RabbitMQ and returns the context's
// error. A later call receives again. Deliveries that are out can still be settled. If the queue
// has an order, other consumers get nothing until then.
func (s *Source) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	const op = "rabbitmq.receive"
	if max < 1 {
		return nil, adapter.BadArgument(op, "max is %d, must be at least 1", max)
	}
	s.pace.Await(ctx)
	ds, err := s.receive(ctx, max)
	if ended := ctx.Err(); ended != nil {
		s.requeue(ds)
		s.stop()
		return nil, &pawl.Error{Op: op, Err: ended}
	}
	s.pace.Polled(err, needsOperator, false)
	if err != nil {
		return nil, wrap(op, s.queue, err)
	}
	s.tell(ctx, ds)
	return ds, nil
}

func (s *Source) receive(ctx context.Context, most int) ([]pawl.Delivery, error) {
	timer := time.NewTimer(s.config.Wait)
	defer timer.Stop()
	for ctx.Err() == nil {
		if loss := s.lossOf(); loss != nil {
			return nil, loss
		}
		if err := s.receiving(ctx); err != nil {
			return nil, err
		}
		s.mu.Lock()
		ds, next := s.take(most)
		changed := s.changed
		s.mu.Unlock()
		if len(ds) > 0 {
			return ds, nil
		}
		due := make(<-chan time.Time)
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-changed:
		case <-due:
		case <-timer.C:
			return nil, s.consumes(ctx)
		case <-ctx.Done():
		}
	}
	return nil, ctx.Err()
}

func (s *Source) tell(ctx context.Context, ds []pawl.Delivery) {
	for _, d := range ds {
		switch h := d.Handle.(*handle); {
		case h.handout > 1:
			s.counters.again.Add(1)
			fallthrough
		case d.Receives > 1:
			s.counters.redelivered.Add(1)
		}
	}
	s.counters.received.Add(int64(len(ds)))
	s.report.Received(ctx, "rabbitmq.receive", ds)
}
