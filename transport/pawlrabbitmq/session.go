package pawlrabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
)

// A session is one channel with its consumer. Delivery tags are unique only within it. Source.mu
// guards all fields except frames and acked.
type session struct {
	number int
	conn   *amqp.Connection
	ch     *amqp.Channel
	tag    string

	// frames is locked while acknowledgements are written, so that RabbitMQ reads them in the order
	// recorded. Otherwise a multiple acknowledgement could cover a delivery whose own one is still
	// to be written, and a second one closes the channel. Lock it before Source.mu.
	frames sync.Mutex
	acked  bool // something was acknowledged; guarded by frames

	arrivals []*arrival // not settled, in the order of their tags
	out      int        // of them, out: Receive returned them
	// idle is since when each check found messages waiting in the queue and none here.
	idle     time.Time
	draining bool // delivers nothing more
	closing  bool // the source is closing its channel
	// gone: its channel has ended, and RabbitMQ has requeued everything.
	gone bool
}

// connection returns the connection, and reconnects if it is lost.
func (s *Source) connection(ctx context.Context) (*amqp.Connection, error) {
	select {
	case s.connecting <- struct{}{}:
		defer func() { <-s.connecting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.connected(ctx)
}

// connected is connection for a caller that holds Source.connecting.
func (s *Source) connected(ctx context.Context) (*amqp.Connection, error) {
	s.mu.Lock()
	conn, finished := s.conn, s.finished
	s.mu.Unlock()
	switch {
	case finished:
		return nil, errFinished
	case conn != nil && !conn.IsClosed():
		return conn, nil
	}
	conn, err := s.dial.connect(ctx, "rabbitmq.connect")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		go hangUp(conn, 0)
		return nil, errFinished
	}
	s.conn = conn
	return conn, nil
}

// receiving opens a session unless there is one.
func (s *Source) receiving(ctx context.Context) error {
	stopping := ctx
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	select {
	case s.connecting <- struct{}{}:
		defer func() { <-s.connecting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	there := s.now != nil
	s.mu.Unlock()
	if there {
		return nil
	}
	conn, err := s.connected(ctx)
	if err != nil {
		return err
	}
	started, err := await(ctx, func() (*consuming, error) { return s.consume(conn) }, func(late *consuming) { _ = late.ch.Close() })
	if err != nil {
		if ctx.Err() != nil && stopping.Err() == nil {
			go hangUp(conn, 0) // it does not answer
		}
		return err
	}
	return s.begin(started)
}

type consuming struct {
	*session
	deliveries <-chan amqp.Delivery
	ended      chan *amqp.Error
	cancelled  chan string
}

func (s *Source) consume(conn *amqp.Connection) (_ *consuming, err error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = ch.Close()
		}
	}()
	c := &consuming{session: &session{conn: conn, ch: ch, tag: "pawl-" + rand.Text()}}
	c.ended, c.cancelled = ch.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyCancel(make(chan string, 1))
	if _, err := ch.QueueDeclarePassive(s.queue, true, false, false, false, nil); err != nil {
		return nil, err
	}
	if err := ch.Qos(s.config.Prefetch, 0, false); err != nil {
		return nil, err
	}
	c.deliveries, err = ch.Consume(s.queue, c.tag, false, false, false, false, nil)
	return c, err
}

// begin makes a started consumer the receiving session.
func (s *Source) begin(c *consuming) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		go func() { _ = c.ch.Close() }()
		return errFinished
	}
	s.numbers++
	c.number = s.numbers
	s.counters.sessions.Add(1)
	s.now, s.loss = c.session, nil
	go func() {
		for d := range c.deliveries {
			s.arrived(c.session, d)
		}
	}()
	go func() {
		select {
		case reason := <-c.ended:
			s.ended(c.session, reason)
		// The broker cancels if the queue was deleted or its node is gone.
		case <-c.cancelled:
			s.ended(c.session, errors.New("RabbitMQ cancelled the consumer: the queue was deleted, or its leader is down"))
			c.frames.Lock() // one call of a channel at a time
			defer c.frames.Unlock()
			_ = c.ch.Close()
		}
	}()
	return nil
}

// ended records that a session is over. RabbitMQ requeues what it held. A delivery that is out is
// counted as lost when it is settled.
func (s *Source) ended(one *session, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.gone {
		return
	}
	one.gone, one.arrivals = true, nil
	delete(s.draining, one)
	if s.now == one {
		s.now = nil
		s.loss = errLost
		if e, is := reason.(*amqp.Error); reason != nil && (!is || e != nil) {
			s.loss = fmt.Errorf("%w: %w", errLost, reason)
		}
	}
	s.broadcast()
}

// broadcast wakes the goroutines that wait for a change. The caller holds s.mu.
func (s *Source) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// stop requeues the deliveries that are not out. The channel stays open until the others are
// settled. Closing it requeues messages in order, and starts the next single active consumer only
// then.
func (s *Source) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.now
	if one == nil {
		return
	}
	s.now, one.draining, s.draining[one] = nil, true, true
	s.broadcast()
	if one.out == 0 {
		s.closeSettled(one)
		return
	}
	if s.config.OrderingKey != nil {
		return
	}
	// Without an order the rest need not wait. The consumer must end first, or RabbitMQ would
	// deliver the same messages to it again.
	s.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		err := do(ctx, func() error {
			one.frames.Lock() // one call of a channel at a time
			defer one.frames.Unlock()
			return one.ch.Cancel(one.tag, false)
		})
		if err == nil {
			s.giveBackRest(one)
		}
	})
}

// closeSettled closes a draining channel once no delivery is out. The caller holds s.mu.
func (s *Source) closeSettled(one *session) {
	if !one.draining || one.out > 0 || one.closing || one.gone {
		return
	}
	one.closing = true
	s.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		s.close(ctx, one)
	})
}

const (
	// settleRounds and settlePause bound how long a channel stays open after its last
	// acknowledgements. RabbitMQ keeps them in the channel while a quorum queue is busy with 32
	// (quorum_commands_soft_limit), and drops them when it closes: 22 of 178 messages came again.
	settleRounds = 3
	settlePause  = 10 * time.Millisecond
)

// close closes a channel. The reply shows that RabbitMQ has read all acknowledgements on it. A
// message whose acknowledgement is still lost comes again, and is absorbed.
func (s *Source) close(ctx context.Context, one *session) {
	err := do(ctx, func() error {
		one.frames.Lock() // waits for a write in progress
		defer one.frames.Unlock()
		for range settleRounds {
			if !one.acked {
				break
			}
			// The queue's leader answers after it has read the acknowledgements.
			if _, err := one.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil); err != nil {
				break
			}
			time.Sleep(settlePause)
		}
		return one.ch.Close()
	})
	s.mu.Lock()
	if err != nil && !one.gone {
		s.unheard = err
	}
	s.mu.Unlock()
	s.ended(one, nil)
	if err != nil {
		hangUp(one.conn, 0) // it does not answer, or is closed already
	}
}

func (s *Source) fail(one *session, err error) {
	s.ended(one, err)
	go hangUp(one.conn, 0)
}

// lossOf returns once why the last session ended.
func (s *Source) lossOf() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	loss := s.loss
	s.loss = nil
	return loss
}

var _ pawl.Source = (*Source)(nil)
