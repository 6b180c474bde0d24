package pawlrabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// inFlight bounds the messages of a line that are not confirmed.
const inFlight = 1024

// A line is a connection with one channel in confirm mode.
type line struct {
	conn  *amqp.Connection
	ch    *amqp.Channel
	slots chan struct{} // one for each message that is not confirmed
	ended chan *amqp.Error

	mu      sync.Mutex
	why     *amqp.Error // the channel was closed for
	returns chan amqp.Return
	back    map[string]string // why messages were returned, by their ids
	stopped chan struct{}     // closed while RabbitMQ blocks the connection
	alarm   string            // why it does; "" if it does not
}

// newLine opens a channel and finds the exchange.
func newLine(conn *amqp.Connection, exchange string) (*line, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	// RabbitMQ returns a message before it confirms it. So many fit that amqp091-go, which reads both in one goroutine, never waits for us.
	l := &line{conn: conn, ch: ch, slots: make(chan struct{}, inFlight), returns: ch.NotifyReturn(make(chan amqp.Return, inFlight)),
		ended: ch.NotifyClose(make(chan *amqp.Error, 1)), back: map[string]string{}, stopped: make(chan struct{})}
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

func (l *line) block(b amqp.Blocking) {
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
func (l *line) blocking() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alarm == "" {
		return nil
	}
	return errors.New(l.alarm)
}

// A posted is a message that was written, or could not be.
type posted struct {
	confirm *amqp.DeferredConfirmation
	err     error
}

// send writes messages, as fast as the broker takes them: a write knows no context.
func (l *line) send(ctx context.Context, exchange string, parcels []parcel) <-chan posted {
	all := make(chan posted, len(parcels))
	go func() {
		for _, p := range parcels {
			all <- l.post(ctx, exchange, p)
		}
	}()
	return all
}

func (l *line) post(ctx context.Context, exchange string, p parcel) posted {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return posted{err: ctx.Err()}
	}
	if err := ctx.Err(); err != nil {
		<-l.slots
		return posted{err: err}
	}
	confirm, err := l.ch.PublishWithDeferredConfirm(exchange, p.key, true, false, p.message)
	if err != nil {
		<-l.slots
		return posted{err: err}
	}
	go func() {
		<-confirm.Done() // also when the channel ends
		l.gather()
		<-l.slots
	}()
	return posted{confirm: confirm}
}

// confirmed waits until RabbitMQ has said something of the next message, or its channel has ended.
func (l *line) confirmed(ctx context.Context, sent <-chan posted) (*amqp.DeferredConfirmation, error) {
	l.mu.Lock()
	stopped := l.stopped
	l.mu.Unlock()
	var p posted
	select {
	case p = <-sent:
	case <-stopped:
		return nil, l.stop()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.err != nil {
		return nil, p.err
	}
	select {
	case <-p.confirm.Done():
		return p.confirm, nil
	case <-stopped:
		return nil, l.stop()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *line) stop() error {
	if err := l.blocking(); err != nil {
		return err
	}
	return errors.New("RabbitMQ blocked the connection for a while")
}

// gather reads what was returned so far. A message that was returned is among it once its confirmation is there.
func (l *line) gather() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		select {
		case r, open := <-l.returns:
			if !open {
				l.returns = nil
				return
			}
			l.back[r.MessageId] = fmt.Sprintf("%s (%d)", r.ReplyText, r.ReplyCode)
		default:
			return
		}
	}
}

// returned says why a message that was confirmed was returned, once; "" if it was not.
func (l *line) returned(id string) string {
	l.gather()
	l.mu.Lock()
	defer l.mu.Unlock()
	reason := l.back[id]
	delete(l.back, id)
	return reason
}

// reason is why the channel was closed.
func (l *line) reason() error {
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
