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

// A Source receives from one queue, on a connection of its own. Its methods may be called from many goroutines. It has goroutines of its own from
// Open until Finish.
type Source struct {
	dial       Dialer
	queue      string
	config     Config
	facts      queueFacts
	pace       adapter.Pacer
	counters   counters
	connecting chan struct{} // held by the call that connects
	closing    sync.WaitGroup

	mu       sync.Mutex
	conn     *amqp.Connection // nil: to be dialled
	now      *session         // that receives; nil: to be opened
	loss     error            // why the last session ended, until a Receive has told it
	draining map[*session]bool
	out      map[string]int // deliveries handed out and not settled, by ordering key, of all sessions
	held     int            // of all keys
	numbers  int            // of sessions
	changed  chan struct{}  // closed when something may be handed out, or a session has ended
	finished bool
	unheard  error // what Finish reports: a channel that was not closed in good order
}

var (
	_ pawl.Finisher  = (*Source)(nil)
	_ pawl.Revocable = (*Source)(nil)
	_ pawl.Broker    = (*Source)(nil)
)

// Open connects and checks the queue. It makes nothing. The error says in one line what to change if the queue does not exist, the user may not
// read it, or it does not fit:
//
//   - a quorum queue, or a classic one with [Config.AllowClassic]; no stream;
//   - x-single-active-consumer if [Config.OrderingKey] is set.
//
// The queue's arguments are found out by declarations that RabbitMQ must refuse, whether the queue exists or not. The broker logs each of them as
// an error: 3 to 8 lines at each Open, and the user needs the permission to configure the queue. [Config.Management] asks the management
// API instead.
//
// Open warns with an event (error) if RabbitMQ may drop messages: a delivery limit without a dead letter exchange, which is what RabbitMQ 4 has by
// default, a message TTL, a maximum length, an expiry of the queue. Without Management it sees no policies, which may set all of these.
//
// A source that no consumer runs needs a call of [Source.Finish].
func Open(ctx context.Context, dial Dialer, queue string, cfg Config) (*Source, error) {
	const op = "rabbitmq.open"
	cfg, err := cfg.filled()
	switch {
	case err != nil:
		return nil, err
	case dial == nil:
		return nil, adapter.BadArgument(op, "the Dialer is missing: pass URL(\"amqp://…\")")
	case queue == "":
		return nil, adapter.BadArgument(op, "the queue has no name")
	}
	s := &Source{dial: dial, queue: queue, config: cfg, connecting: make(chan struct{}, 1), draining: map[*session]bool{}, out: map[string]int{},
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
		s.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: op, Err: errors.New(warning)})
	}
	return s, nil
}

// Broker returns rabbitmq and the name of the queue, for traces.
func (s *Source) Broker() (system, destination string) { return "rabbitmq", s.queue }

// Info returns [Config.RedeliveryHorizon], and batches that suit a prefetching broker.
func (s *Source) Info() pawl.SourceInfo {
	return pawl.SourceInfo{RedeliveryHorizon: s.config.RedeliveryHorizon, ReceiveBatch: min(receiveBatch, s.config.Prefetch), AckBatch: ackBatch, ReleaseBlocks: true}
}

// Finish ends the source. It closes its channels, whose answers prove that RabbitMQ has read all acknowledgements, and the connection. What is not
// settled returns to the queue in its order. A consumer calls it last. Ack and Release after it do nothing and return an error.
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

// A Backlog is what waits in a queue: the signal to scale by.
type Backlog struct {
	Ready     int // messages that no consumer has
	Consumers int // consumers of the queue, in all processes
}

// Backlog asks RabbitMQ how much waits. What consumers have prefetched is not in it.
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
