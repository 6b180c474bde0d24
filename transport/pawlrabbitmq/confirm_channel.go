package pawlrabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// maxInFlight bounds the messages of a channel that are not answered.
const maxInFlight = 1024

// A confirmChannel is a connection with one channel in confirm mode.
type confirmChannel struct {
	conn  *amqp.Connection
	ch    *amqp.Channel
	slots chan struct{} // one for each message that is not answered
	ended chan *amqp.Error
	calls int  // of Publish that use it; guarded by Sink.mu
	over  bool // no other call may use it; guarded by Sink.mu

	mu      sync.Mutex
	why     *amqp.Error // the channel was closed for
	left    int         // messages that were not answered when the channel ended
	returns chan amqp.Return
	open    map[string][]*posted // messages that are not answered, by their ids
	stopped chan struct{}        // closed while RabbitMQ blocks the connection
	alarm   string               // why it does; "" if it does not
}

// newConfirmChannel opens a channel and finds the exchange.
func newConfirmChannel(conn *amqp.Connection, exchange string) (*confirmChannel, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	// RabbitMQ returns a message before it confirms it. So many fit that amqp091-go, which reads both in one goroutine, never waits for us.
	l := &confirmChannel{conn: conn, ch: ch, slots: make(chan struct{}, maxInFlight), returns: ch.NotifyReturn(make(chan amqp.Return, maxInFlight)),
		ended: ch.NotifyClose(make(chan *amqp.Error, 1)), open: map[string][]*posted{}, stopped: make(chan struct{})}
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 8))
	go func() {
		for b := range blocks {
			l.block(b)
		}
	}()
	if exchange != "" {
		if err := ch.ExchangeDeclarePassive(exchange, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
			return nil, err
		}
	}
	return l, ch.Confirm(false)
}

func (l *confirmChannel) block(b amqp.Blocking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case b.Active && l.alarm == "":
		l.alarm = "RabbitMQ blocks the connection: " + b.Reason
		close(l.stopped)
	case !b.Active && l.alarm != "":
		l.alarm, l.stopped = "", make(chan struct{})
	}
}

// blocking returns why nothing can be published now; nil if it can.
func (l *confirmChannel) blocking() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alarm == "" {
		return nil
	}
	return errors.New(l.alarm)
}

// A posted is a message on its way, with an answer that is its own.
type posted struct {
	id       string
	answered chan struct{} // closed once the answer is known: the fields below
	err      error         // why it was not written
	acked    bool
	returned string // why RabbitMQ returned it; "" if it did not
	alone    bool   // the channel ended, and no other message was without an answer then
}

// send writes messages, as fast as the broker takes them: a write knows no context.
func (l *confirmChannel) send(ctx context.Context, exchange string, parcels []parcel) []*posted {
	all := make([]*posted, len(parcels))
	for i, p := range parcels {
		all[i] = &posted{id: p.message.MessageId, answered: make(chan struct{})}
	}
	go func() {
		for i, p := range parcels {
			l.post(ctx, exchange, p, all[i])
		}
	}()
	return all
}

func (l *confirmChannel) post(ctx context.Context, exchange string, p parcel, one *posted) {
	if one.err = l.enter(ctx, one); one.err != nil {
		close(one.answered)
		return
	}
	confirm, err := l.ch.PublishWithDeferredConfirm(exchange, p.key, true, false, p.message)
	if err != nil {
		l.settle(one, false, err)
		return
	}
	go func() {
		<-confirm.Done() // also when the channel ends
		l.settle(one, confirm.Acked(), nil)
	}()
}

// enter waits for a slot.
func (l *confirmChannel) enter(ctx context.Context, one *posted) error {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		<-l.slots
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[one.id] = append(l.open[one.id], one)
	return nil
}

// settle makes the answer to a message known. amqp091-go matches confirmations by their delivery
// tags. A return has none: it is known by the id.
func (l *confirmChannel) settle(one *posted, acked bool, err error) {
	l.mu.Lock()
	l.gather()
	if l.left == 0 && !acked && l.ch.IsClosed() {
		l.left = len(l.slots)
	}
	one.acked, one.err, one.alone = acked, err, l.left == 1
	if l.open[one.id] = slices.DeleteFunc(l.open[one.id], func(p *posted) bool { return p == one }); len(l.open[one.id]) == 0 {
		delete(l.open, one.id)
	}
	l.mu.Unlock()
	close(one.answered)
	<-l.slots
}

// answer waits until RabbitMQ has answered a message, or its channel has ended.
func (l *confirmChannel) answer(ctx context.Context, one *posted) error {
	l.mu.Lock()
	stopped := l.stopped
	l.mu.Unlock()
	var silent error
	select {
	case <-one.answered:
		return one.err
	case <-stopped:
		silent = l.stop()
	case <-ctx.Done():
		silent = ctx.Err()
	}
	select {
	case <-one.answered: // at the same time
		return one.err
	default:
		return silent
	}
}

func (l *confirmChannel) stop() error {
	if err := l.blocking(); err != nil {
		return err
	}
	return errors.New("RabbitMQ blocked the connection for a while")
}

// gather reads what was returned so far. RabbitMQ returns a message before it confirms it, so a
// return is read before its message is settled. If several with one id are on their way, it counts
// for each: to publish one again does no harm.
func (l *confirmChannel) gather() {
	for {
		select {
		case r, open := <-l.returns:
			if !open {
				l.returns = nil
				return
			}
			for _, p := range l.open[r.MessageId] {
				p.returned = fmt.Sprintf("%s (%d)", r.ReplyText, r.ReplyCode)
			}
		default:
			return
		}
	}
}

// reason is why the channel was closed.
func (l *confirmChannel) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case e := <-l.ended:
		if e != nil {
			l.why = e
		}
	default:
	}
	if l.why == nil {
		return errLost
	}
	return l.why
}
