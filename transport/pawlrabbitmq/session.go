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

// A session is one channel with its consumer. Delivery tags mean something in their session only. Its fields are guarded by Source.mu, but for
// frames.
type session struct {
	number int
	conn   *amqp.Connection
	ch     *amqp.Channel
	tag    string

	// frames is held while what was settled is written: RabbitMQ must read it in the order in which it was noted, or an acknowledgement of many
	// may cover one that is on its way, and a second one closes the channel. Taken before Source.mu.
	frames sync.Mutex
	acked  bool // something was acknowledged; guarded by frames

	arrivals []*arrival // not settled, in the order of their tags
	out      int        // of them, those handed out
	idle     time.Time  // since when, at each look, messages waited and it had nothing
	draining bool       // hands out nothing any more
	closing  bool       // its channel is being closed by us
	gone     bool       // its channel has ended: RabbitMQ has taken everything back
}

// connection returns the connection, made anew if it is lost.
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

// receiving makes sure that a session receives.
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

// consuming is a channel on which a consumer was started.
type consuming struct {
	*session
	deliveries <-chan amqp.Delivery
	ended      chan *amqp.Error
	cancelled  chan string
}

// consume opens a channel and starts a consumer on it.
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

// begin makes a started consumer the session that receives.
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
		case <-c.cancelled: // by the broker: the queue was deleted, or its node is gone
			s.ended(c.session, errors.New("RabbitMQ cancelled the consumer: the queue was deleted, or its leader is away"))
			c.frames.Lock() // one call of a channel at a time
			defer c.frames.Unlock()
			_ = c.ch.Close()
		}
	}()
	return nil
}

// ended notes that a session is over. What it held and had not handed out is RabbitMQ's again; what it had handed out is dead when it is settled.
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

// broadcast wakes who waits for a change. The caller has s.mu.
func (s *Source) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// stop gives back what was received and not handed out. The channel stays until what was handed out is settled: closing it is what returns
// messages in their order, and of a queue with a single active consumer, what keeps the next one waiting until then.
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
	// Without an order the rest need not wait for what is out. First the consumer ends, or RabbitMQ would hand it the same messages again.
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

// closeSettled closes the channel of a session that hands out nothing any more, once nothing of it is out. The caller has s.mu.
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
	// settleRounds and settlePause bound how long a channel stays open for what was acknowledged last. RabbitMQ keeps acknowledgements in the channel
	// while a quorum queue is busy with 32 of them (quorum_commands_soft_limit), and a channel that closes drops those: 22 of 178 came
	// again.
	settleRounds = 3
	settlePause  = 10 * time.Millisecond
)

// close closes a channel. The answer proves that RabbitMQ has read all that was acknowledged on it. What is lost all the same comes again, and is
// absorbed.
func (s *Source) close(ctx context.Context, one *session) {
	err := do(ctx, func() error {
		one.frames.Lock() // what is being written comes first
		defer one.frames.Unlock()
		for range settleRounds {
			if !one.acked {
				break
			}
			if _, err := one.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil); err != nil { // asks the queue's leader, behind what it was told
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

// fail gives up a session whose frames could not be written.
func (s *Source) fail(one *session, err error) {
	s.ended(one, err)
	go hangUp(one.conn, 0)
}

// lossOf returns why the last session ended, once.
func (s *Source) lossOf() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	loss := s.loss
	s.loss = nil
	return loss
}

var _ pawl.Source = (*Source)(nil)
