package pawlrabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// A Source receives from one queue, on its own connection. Its methods are safe for concurrent use.
// It has goroutines from Open until Finish.
type Source struct {
	dial       Dialer
	queue      string
	config     Config
	facts      queueFacts
	pace       adapter.Pacer
	report     adapter.Reporter
	counters   counters
	connecting chan struct{} // held by the call that connects
	closing    sync.WaitGroup

	mu   sync.Mutex
	conn *amqp.Connection // nil: not connected
	now  *session         // the receiving session; nil: none
	// loss is why the last session ended, until Receive returns it.
	loss     error
	draining map[*session]bool
	// out counts the deliveries that are out, by ordering key, in all sessions.
	out     map[string]int
	held    int // the same, of all keys
	numbers int // sessions so far
	// changed is closed when something may be delivered, or a session has ended.
	changed  chan struct{}
	finished bool
	// unheard is the error of closing a channel, which Finish reports.
	unheard error
}

var (
	_ pawl.Finisher  = (*Source)(nil)
	_ pawl.Revocable = (*Source)(nil)
	_ pawl.Broker    = (*Source)(nil)
)

// Open connects and checks the queue. It declares nothing. It returns an error that says what to
// change if the queue does not exist, the user may not read it, or the queue does not fit:
//
//   - it must be a quorum queue, or a classic one with [Config.AllowClassic], and not a stream;
//   - it must have x-single-active-consumer if [Config.OrderingKey] is set.
//
// Open finds the queue's arguments by declarations that RabbitMQ must refuse, whether the queue
// exists or not. The broker logs each as an error, 3 to 8 lines per Open, and the user needs the
// permission to configure the queue. With [Config.Management] it asks the management API instead.
//
// Open reports an error event if RabbitMQ may drop messages. Reasons are a delivery limit without a
// dead letter exchange (the default of RabbitMQ 4), a message TTL, a maximum length, and an expiry
// of the queue. Without Management it does not see policies, which may set all of these.
//
// If no consumer runs the source, call [Source.Finish].
func Open(ctx context.Context, dial Dialer, queue string, cfg Config) (*Source, error) {
	const op = "rabbitmq.open"
	cfg, err := cfg.filled()
	switch {
	case err != nil:
		return nil, err
	case dial == nil:
		return nil, adapter.BadArgument(op, "the Dialer is missing: pass URL(\"amqp://…\")")
	case queue == "":
		return nil, adapter.BadArgument(op, "the name of the queue is empty")
	}
	s := &Source{dial: dial, queue: queue, config: cfg, report: adapter.Reporter{Hooks: cfg.Hooks, Scope: queue}, connecting: make(chan struct{}, 1), draining: map[*session]bool{}, out: map[string]int{},
		changed: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if s.conn, err = dial.connect(ctx, op); err != nil {
		return nil, wrap(op, queue, err)
	}
	if s.facts, err = look(ctx, s.conn, queue, cfg.Management); err == nil {
		err = cfg.unfit(queue, s.facts)
	}
	if err != nil {
		hangUp(s.conn, callTimeout)
		return nil, wrap(op, queue, err)
	}
	for _, warning := range s.facts.warnings(queue) {
		s.report.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: op, Err: errors.New(warning)})
	}
	return s, nil
}

// Broker returns rabbitmq and the name of the queue, for traces.
func (s *Source) Broker() (system, destination string) { return "rabbitmq", s.queue }

// Info returns [Config.RedeliveryHorizon], and batch sizes for a prefetching broker.
func (s *Source) Info() pawl.SourceInfo {
	return pawl.SourceInfo{RedeliveryHorizon: s.config.RedeliveryHorizon, ReceiveBatch: min(receiveBatch, s.config.Prefetch), AckBatch: ackBatch, ReleaseBlocks: true}
}

// Finish ends the source. It closes the channels, whose replies show that RabbitMQ has read all
// acknowledgements, and the connection. Unsettled messages return to the queue in order. A consumer
// calls Finish last. Later calls of Ack and Release do nothing and return an error.
func (s *Source) Finish(ctx context.Context) error {
	const op = "rabbitmq.finish"
	s.mu.Lock()
	s.finished = true
	var open []*session
	if s.now != nil {
		open = append(open, s.now)
		s.now.draining, s.draining[s.now], s.now = true, true, nil
	}
	for one := range s.draining {
		if !one.closing {
			one.closing = true
			open = append(open, one)
		}
	}
	conn := s.conn
	s.broadcast()
	s.mu.Unlock()

	for _, one := range open {
		s.closing.Go(func() { s.close(ctx, one) })
	}
	err := do(ctx, func() error { s.closing.Wait(); return nil })
	s.mu.Lock()
	s.conn, err = nil, errors.Join(err, s.unheard)
	s.mu.Unlock()
	if conn != nil && !conn.IsClosed() {
		patience, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		end, _ := patience.Deadline()
		hangUp(conn, time.Until(end))
	}
	if err != nil {
		return wrap(op, s.queue, fmt.Errorf("acknowledgements may be lost, and their messages come again: %w", err))
	}
	return nil
}

// A Backlog is the load of a queue, for autoscaling.
type Backlog struct {
	Ready     int // messages not sent to a consumer
	Consumers int // consumers of the queue, in all processes
}

// Backlog asks RabbitMQ for the load. It excludes messages that consumers have prefetched.
func (s *Source) Backlog(ctx context.Context) (Backlog, error) {
	const op = "rabbitmq.backlog"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := s.connection(ctx)
	if err != nil {
		return Backlog{}, wrap(op, s.queue, err)
	}
	q, err := await(ctx, func() (amqp.Queue, error) {
		ch, err := conn.Channel()
		if err != nil {
			return amqp.Queue{}, err
		}
		defer func() { _ = ch.Close() }()
		return ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
	}, func(amqp.Queue) {})
	if err != nil {
		return Backlog{}, wrap(op, s.queue, err)
	}
	return Backlog{Ready: q.Messages, Consumers: q.Consumers}, nil
}
