package pawlrabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// maxInFlight bounds the unconfirmed messages of a channel.
const maxInFlight = 1024

// A confirmChannel is a connection with one channel in confirm mode.
type confirmChannel struct {
	conn  *amqp.Connection
	ch    *amqp.Channel
	slots chan struct{} // one for each unconfirmed message
	ended chan *amqp.Error
	calls int  // calls of Publish that use it; guarded by Sink.mu
	over  bool // no new call may use it; guarded by Sink.mu

	mu      sync.Mutex
	why     *amqp.Error // why the channel was closed
	left    int         // messages unconfirmed when the channel ended
	returns chan amqp.Return
	open    map[string][]*posted // unconfirmed messages, by their ids
	stopped chan struct{}        // closed while RabbitMQ blocks the connection
	alarm   string               // why it is blocked; "" if it is not
}

// newConfirmChannel opens a channel and checks that the exchange exists.
func newConfirmChannel(conn *amqp.Connection, exchange string) (*confirmChannel, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	// RabbitMQ returns a message before it confirms it, and amqp091-go reads both in one goroutine.
	// returns holds maxInFlight messages, so that goroutine never waits.
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

func (l *confirmChannel) blocking() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alarm == "" {
		return nil
	}
	return errors.New(l.alarm)
}

// A posted is a message that was sent, and its confirm.
type posted struct {
	id       string
	settled  chan struct{} // closed once the fields below are set
	err      error         // why it was not written
	acked    bool
	returned string // why RabbitMQ returned it, or ""
	// alone: the channel ended while this was the only unconfirmed message.
	alone bool
}

// send writes messages in a goroutine, because a write has no context and may block.
func (l *confirmChannel) send(ctx context.Context, exchange string, parcels []parcel) []*posted {
	all := make([]*posted, len(parcels))
	for i, p := range parcels {
		all[i] = &posted{id: p.message.MessageId, settled: make(chan struct{})}
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
		close(one.settled)
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

// settle sets a message's confirm. A return has no delivery tag, so it is matched by id.
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
	close(one.settled)
	<-l.slots
}

// await waits until a message is confirmed, or until no confirm can be expected.
func (l *confirmChannel) await(ctx context.Context, one *posted) error {
	l.mu.Lock()
	stopped := l.stopped
	l.mu.Unlock()
	var silent error
	select {
	case <-one.settled:
		return one.err
	case <-stopped:
		silent = l.stop()
	case <-ctx.Done():
		silent = ctx.Err()
	}
	select {
	case <-one.settled: // settled at the same time
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

// gather reads the returns so far. RabbitMQ returns a message before it confirms it, so a return is
// read before its message is settled. If several messages in flight have one id, it counts for
// each, because publishing one again does no harm.
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
