package pawlrabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// defaultMaxSize is what RabbitMQ 4 takes of a message (max_message_size); 3.x takes 128 MiB.
// maxMaxSize is the most that it can be told to take.
const (
	defaultMaxSize = 16 << 20
	maxMaxSize     = 512 << 20
)

// SinkConfig shapes a [Sink]. The zero value is fit for production. Set at most one of RoutingKey and
// RoutingKeyOf.
type SinkConfig struct {
	// RoutingKey is that of every message, at most 255 octets. For the default exchange, named "", it
	// is the name of a queue.
	RoutingKey string
	// RoutingKeyOf chooses the routing key of a message, at most 255 octets; it must always answer the
	// same for one message. Default: its Type, as a topic exchange wants.
	RoutingKeyOf func(m pawl.Message) string
	// MaxSize is the broker's max_message_size, in octets of the payload. A larger one becomes a dead letter; without this limit it would close
	// the channel. Default 16 MiB, which is that of RabbitMQ 4, allowed 1 octet to 512 MiB, the most that RabbitMQ can be set to.
	MaxSize int
}

// A Sink publishes the events of an outbox to an exchange: give it to outbox.Config. Its methods may be called from many goroutines. It has a
// connection of its own and connects again by itself.
//
// A message counts as published once RabbitMQ has confirmed it. It is persistent and mandatory: if no queue is bound for its routing key,
// RabbitMQ returns it, which is an error of this event. It is tried again, as a binding may be added, and becomes a dead letter when its attempts are
// used up. What RabbitMQ refuses otherwise (a full queue with reject-publish, a blocked connection, an exchange that is gone) is the sink's failure
// and charged to no event.
//
// If no confirmation comes, it is unknown whether the message is stored: it is published again, with the same id, and receivers absorb it. The event's
// id is the property message-id and the header Idempotency-Key. The other headers go along, as the AMQP binding of CloudEvents 1.0 names them.
type Sink struct {
	dial       Dialer
	exchange   string
	config     SinkConfig
	connecting chan struct{} // held by the call that connects

	mu      sync.Mutex
	channel *confirmChannel // nil: to be connected
	closed  bool
}

var (
	_ pawl.Carrier   = (*Sink)(nil)
	_ pawl.BatchSink = (*Sink)(nil)
	_ pawl.Broker    = (*Sink)(nil)
)

// OpenSink connects and finds the exchange; "" is the default exchange, which routes to the queue that the routing key names. It makes nothing. Close
// the sink after the relay has ended.
func OpenSink(ctx context.Context, dial Dialer, exchange string, cfg SinkConfig) (*Sink, error) {
	const op = "rabbitmq.sink"
	if cfg.MaxSize == 0 {
		cfg.MaxSize = defaultMaxSize
	}
	switch {
	case dial == nil:
		return nil, adapter.BadArgument(op, "the Dialer is missing: pass URL(\"amqp://…\")")
	case cfg.MaxSize < 1 || cfg.MaxSize > maxMaxSize:
		return nil, adapter.BadArgument(op, "MaxSize is %d, allowed are 1 to %d", cfg.MaxSize, maxMaxSize)
	case cfg.RoutingKey != "" && cfg.RoutingKeyOf != nil:
		return nil, adapter.BadArgument(op, "set one of RoutingKey and RoutingKeyOf")
	case cfg.RoutingKey != "":
		cfg.RoutingKeyOf = func(pawl.Message) string { return cfg.RoutingKey }
	case cfg.RoutingKeyOf == nil:
		cfg.RoutingKeyOf = func(m pawl.Message) string { return m.Type }
	}
	s := &Sink{dial: dial, exchange: exchange, config: cfg, connecting: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	l, err := s.connected(ctx)
	if err != nil {
		return nil, wrap(op, exchange, err)
	}
	s.leave(l)
	return s, nil
}

// Broker returns rabbitmq and the name of the exchange, for traces.
func (s *Sink) Broker() (system, destination string) { return "rabbitmq", s.exchange }

// Close closes the connection. Publish after it returns an error.
func (s *Sink) Close() error {
	s.mu.Lock()
	l := s.channel
	s.channel, s.closed = nil, true
	s.mu.Unlock()
	if l == nil || l.conn.IsClosed() {
		return nil
	}
	return l.conn.CloseDeadline(time.Now().Add(callTimeout))
}

// Publish implements [pawl.Sink]: it sends all messages and then waits for their confirmations.
func (s *Sink) Publish(ctx context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	var parcels []parcel
	for i, m := range ms {
		p, err := s.parcel(m)
		if err != nil {
			errs[i] = misfit(err)
			continue
		}
		p.place = i
		parcels = append(parcels, p)
	}
	for i, err := range s.publish(ctx, parcels) {
		errs[parcels[i].place] = err
	}
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

// PublishBatch implements [pawl.BatchSink]: it sends the events of an aggregate one by one, each after the one before was confirmed. RabbitMQ may return
// or refuse one message and take the next, so no other way keeps their order.
func (s *Sink) PublishBatch(ctx context.Context, ms []pawl.Message) (accepted int, err error) {
	for _, m := range ms {
		if errs := s.Publish(ctx, []pawl.Message{m}); errs != nil {
			return accepted, errs[0]
		}
		accepted++
	}
	return accepted, nil
}

// publish sends parcels and returns what became of each.
func (s *Sink) publish(ctx context.Context, parcels []parcel) []error {
	errs := make([]error, len(parcels))
	if len(parcels) == 0 {
		return errs
	}
	l, err := s.connected(ctx)
	if err == nil {
		defer s.leave(l)
		err = l.blocking()
	}
	if err != nil {
		for i := range errs {
			errs[i] = s.down(err)
		}
		return errs
	}
	if err := fault.At("rabbitmq.publish.before"); err != nil {
		for i := range errs {
			errs[i] = s.down(err)
		}
		return errs
	}
	unknown := false
	for i, one := range l.send(ctx, s.exchange, parcels) {
		var certain bool
		errs[i], certain = s.outcome(ctx, l, parcels[i], one)
		unknown = unknown || !certain
	}
	if unknown && l.blocking() == nil {
		s.drop(l) // the network may be silent, or a queue without a leader hold up the channel
	}
	if err := fault.At("rabbitmq.publish.after"); err != nil {
		errs[0] = s.down(err)
	}
	return errs
}

func (s *Sink) down(err error) error { return pawl.SinkDown(wrap("rabbitmq.sink", s.exchange, err)) }

// outcome waits for what RabbitMQ says of one message. If it says nothing, that is not certain.
func (s *Sink) outcome(ctx context.Context, l *confirmChannel, p parcel, one *posted) (err error, certain bool) {
	if err := l.answer(ctx, one); err != nil {
		return s.down(fmt.Errorf("it is unknown whether RabbitMQ has the message: %w", err)), false
	}
	if one.returned != "" {
		return &pawl.Error{Op: "rabbitmq.sink", Err: fmt.Errorf("RabbitMQ returned the message: %s, exchange %q, routing key %q", one.returned, s.exchange, p.key),
			Hint: "bind a queue for this routing key, or correct SinkConfig.RoutingKey or RoutingKeyOf"}, true
	}
	if one.acked {
		return nil, true
	}
	if !l.ch.IsClosed() {
		return s.down(errors.New("RabbitMQ refused the message: a queue is full (reject-publish), or it could not store it")), true
	}
	reason := l.reason()
	var answer *amqp.Error
	aboutContent := errors.As(reason, &answer) && answer.Code == amqp.PreconditionFailed // such as its size
	if aboutContent && one.alone {
		return wrap("rabbitmq.sink", s.exchange, reason), false
	}
	return s.down(fmt.Errorf("it is unknown whether RabbitMQ has the message: %w", reason)), false
}

// connected returns the channel, connected anew if it is lost, and counts the call that uses it: see
// leave.
func (s *Sink) connected(ctx context.Context) (*confirmChannel, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	select {
	case s.connecting <- struct{}{}:
		defer func() { <-s.connecting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	l, closed := s.channel, s.closed
	lost := l != nil && (l.ch.IsClosed() || l.conn.IsClosed())
	if l != nil && !lost {
		l.calls++
	}
	s.mu.Unlock()
	switch {
	case closed:
		return nil, errors.New("the sink is closed")
	case lost:
		s.drop(l)
	case l != nil:
		return l, nil
	}
	conn, err := s.dial.connect(ctx, "rabbitmq.sink")
	if err != nil {
		return nil, err
	}
	l, err = await(ctx, func() (*confirmChannel, error) { return newConfirmChannel(conn, s.exchange) }, func(late *confirmChannel) {})
	if err != nil {
		go hangUp(conn, 0)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		go hangUp(conn, 0)
		return nil, errors.New("the sink is closed")
	}
	s.channel, l.calls = l, 1
	return l, nil
}

// leave ends the use of a channel by a call.
func (s *Sink) leave(l *confirmChannel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.calls--
	s.end(l)
}

// drop gives up a channel: later calls connect anew. Other calls that use it still get the answers to
// their messages.
func (s *Sink) drop(l *confirmChannel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channel == l {
		s.channel = nil
	}
	l.over = true
	s.end(l)
}

// end closes a channel that was given up, after its last call.
func (s *Sink) end(l *confirmChannel) {
	if l.over && l.calls == 0 {
		go hangUp(l.conn, 0)
	}
}

// misfit is the end of an event of which no message can be made. A panic says nothing of the next
// attempt, and is charged.
func misfit(err error) error {
	failure := &pawl.Error{Op: "rabbitmq.sink", Err: err}
	if callback.Panicked(err) {
		return failure
	}
	return pawl.Final(failure)
}
