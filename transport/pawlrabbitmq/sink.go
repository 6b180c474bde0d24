package pawlrabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// defaultMaxSize is the default of RabbitMQ 4 (3.x: 128 MiB), maxMaxSize the largest it allows.
const (
	defaultMaxSize = 16 << 20
	maxMaxSize     = 512 << 20
)

// SinkConfig configures a [Sink]. The zero value is fit for production. Set at most one of
// RoutingKey and RoutingKeyOf.
type SinkConfig struct {
	// RoutingKey is that of every message, at most 255 octets. On the default exchange it names a
	// queue.
	RoutingKey string
	// RoutingKeyOf returns the routing key of a message, at most 255 octets, always the same for
	// one message. Default: its Type, as a topic exchange wants.
	RoutingKeyOf func(m pawl.Message) string
	// MaxSize is the broker's max_message_size, in octets of the payload. A larger message becomes
	// a dead letter, because it would close the channel. Default 16 MiB, as in RabbitMQ 4; allowed
	// 1 octet to 512 MiB, RabbitMQ's own limit.
	MaxSize int
}

// A Sink publishes the events of an outbox to an exchange: pass it to outbox.Config. Its methods
// are safe for concurrent use. It has its own connection and reconnects by itself.
//
// A message counts as published once RabbitMQ has confirmed it. It is persistent and mandatory: if
// no queue is bound for its routing key, RabbitMQ returns it, which is an error of this event. The
// event is retried, because a binding may be added, and becomes a dead letter when its attempts are
// used up. Other refusals (a full queue with reject-publish, a blocked connection, a missing
// exchange) are failures of the sink and charged to no event.
//
// If no confirmation comes, the message may be stored or not. It is published again with the same
// id, and receivers absorb the duplicate. The event's id is the property message-id and the header
// Idempotency-Key. The other headers are named as in the AMQP binding of CloudEvents 1.0.
type Sink struct {
	dial       Dialer
	exchange   string
	config     SinkConfig
	connecting chan struct{} // held by the call that connects

	mu      sync.Mutex
	channel *confirmChannel // nil: not connected
	closed  bool
}

var (
	_ pawl.Carrier   = (*Sink)(nil)
	_ pawl.BatchSink = (*Sink)(nil)
	_ pawl.Broker    = (*Sink)(nil)
)

// OpenSink connects and checks that the exchange exists. It declares nothing. The default exchange
// "" routes to the queue that the routing key names. Close the sink after the relay has ended.
func OpenSink(ctx context.Context, dial Dialer, exchange string, cfg SinkConfig) (*Sink, error) {
	const op = "rabbitmq.sink"
	cfg.MaxSize = cmp.Or(cfg.MaxSize, defaultMaxSize)
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

// Close closes the connection. Later calls of Publish return an error.
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

// Publish implements [pawl.Sink]. It sends all messages and then waits for their confirmations.
func (s *Sink) Publish(ctx context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	var parcels []parcel
	for i, m := range ms {
		p, err := s.parcel(m)
		if err != nil {
			errs[i] = misfit(err)
			continue
		}
		p.index = i
		parcels = append(parcels, p)
	}
	for i, err := range s.publish(ctx, parcels) {
		errs[parcels[i].index] = err
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// PublishBatch implements [pawl.BatchSink]. It sends each event after the one before is confirmed.
// RabbitMQ may refuse one message and accept the next, so no other way keeps their order.
func (s *Sink) PublishBatch(ctx context.Context, ms []pawl.Message) (accepted int, err error) {
	for _, m := range ms {
		if errs := s.Publish(ctx, []pawl.Message{m}); errs != nil {
			return accepted, errs[0]
		}
		accepted++
	}
	return accepted, nil
}

func (s *Sink) publish(ctx context.Context, parcels []parcel) []error {
	if len(parcels) == 0 {
		return nil
	}
	l, err := s.connected(ctx)
	if err == nil {
		defer s.leave(l)
		err = l.blocking()
	}
	if err == nil {
		err = fault.At("rabbitmq.publish.before")
	}
	if err != nil {
		return slices.Repeat([]error{s.down(err)}, len(parcels))
	}
	errs, unknown := make([]error, len(parcels)), false
	for i, one := range l.send(ctx, s.exchange, parcels) {
		var certain bool
		errs[i], certain = s.confirmed(ctx, l, parcels[i], one)
		unknown = unknown || !certain
	}
	if unknown && l.blocking() == nil {
		// The network may be silent, or a queue without a leader may block the channel.
		s.drop(l)
	}
	if err := fault.At("rabbitmq.publish.after"); err != nil {
		errs[0] = s.down(err)
	}
	return errs
}

func (s *Sink) down(err error) error { return pawl.SinkDown(wrap("rabbitmq.sink", s.exchange, err)) }

// confirmed waits for RabbitMQ's confirm of one message. certain is false if none came.
func (s *Sink) confirmed(ctx context.Context, l *confirmChannel, p parcel, one *posted) (err error, certain bool) {
	if err := l.await(ctx, one); err != nil {
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
	var exception *amqp.Error
	// The content may be too large, for example.
	aboutContent := errors.As(reason, &exception) && exception.Code == amqp.PreconditionFailed
	if aboutContent && one.alone {
		return wrap("rabbitmq.sink", s.exchange, reason), false
	}
	return s.down(fmt.Errorf("it is unknown whether RabbitMQ has the message: %w", reason)), false
}

// connected returns the channel, and reconnects if it is lost. It counts the call until leave.
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

func (s *Sink) leave(l *confirmChannel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.calls--
	s.end(l)
}

// drop makes later calls reconnect. Calls that use the channel still get their confirms.
func (s *Sink) drop(l *confirmChannel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channel == l {
		s.channel = nil
	}
	l.over = true
	s.end(l)
}

// end closes a dropped channel after its last call.
func (s *Sink) end(l *confirmChannel) {
	if l.over && l.calls == 0 {
		go hangUp(l.conn, 0)
	}
}

// misfit returns the error of an event that cannot be sent. A panic may not happen at the next
// attempt, so it is charged and not final.
func misfit(err error) error {
	failure := &pawl.Error{Op: "rabbitmq.sink", Err: err}
	if callback.Panicked(err) {
		return failure
	}
	return pawl.Final(failure)
}
