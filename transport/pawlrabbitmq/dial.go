package pawlrabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// A Dialer makes a new connection at each call. The calling [Source] or [Sink] owns and closes it.
//
// amqp.Config.Recovery of the connection must be nil. A recovered channel numbers its deliveries
// from 1 again, so a late acknowledgement would remove another message.
type Dialer func() (*amqp.Connection, error)

// defaultHeartbeat detects a silent connection after 30 s: amqp091-go waits for three heartbeats.
const defaultHeartbeat = 10 * time.Second

// URL dials amqp://user:password@host:5672/vhost, or amqps:// for TLS, with a heartbeat of 10 s.
func URL(url string) Dialer { return URLConfig(url, amqp.Config{}) }

// URLConfig dials with a configuration: certificates, the connection's name, another heartbeat. A
// silent connection is closed after three heartbeats. 0 means 10 s; RabbitMQ may lower it.
func URLConfig(url string, c amqp.Config) Dialer {
	c.Heartbeat, c.Locale = cmp.Or(c.Heartbeat, defaultHeartbeat), cmp.Or(c.Locale, "en_US")
	return func() (*amqp.Connection, error) {
		// The error's text would repeat the address with the password.
		if _, err := amqp.ParseURI(url); err != nil {
			return nil, errAddress
		}
		return amqp.DialConfig(url, c)
	}
}

var errAddress = errors.New("the address of RabbitMQ is invalid: use amqp://user:password@host:5672/vhost, and escape / ? # @ and % in the password")

const (
	callTimeout    = 10 * time.Second // of calls without a caller's deadline
	connectTimeout = 20 * time.Second // of a connection with its channel
)

// connect dials until ctx ends. A connection that is made later is closed.
func (dial Dialer) connect(ctx context.Context, op string) (*amqp.Connection, error) {
	conn, err := await(ctx, dial, func(late *amqp.Connection) { hangUp(late, 0) })
	switch {
	case err != nil:
		return nil, err
	case conn == nil:
		return nil, adapter.BadArgument(op, "the Dialer returned no connection")
	case conn.Config.Recovery != nil:
		hangUp(conn, callTimeout)
		return nil, &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid,
			Err:  errors.New("the connection recovers by itself: a late acknowledgement would remove another message"),
			Hint: "leave amqp.Config.Recovery nil: the source and the sink reconnect by themselves"}
	}
	return conn, nil
}

// await runs a call that takes no context. If ctx ends first, late gets a later result.
func await[T any](ctx context.Context, call func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	go func() {
		var a result
		a.err = callback.Do("", func() (err error) {
			a.value, err = call()
			return err
		})
		results <- a
	}()
	select {
	case a := <-results:
		return a.value, a.err
	case <-ctx.Done():
		go func() {
			if a := <-results; a.err == nil {
				late(a.value)
			}
		}()
		var none T
		return none, fmt.Errorf("no answer: %w", ctx.Err())
	}
}

func do(ctx context.Context, call func() error) error {
	_, err := await(ctx, func() (struct{}, error) { return struct{}{}, call() }, func(struct{}) {})
	return err
}

// hangUp closes a connection, with a proper close if that takes no longer than patience.
func hangUp(conn *amqp.Connection, patience time.Duration) {
	_ = conn.CloseDeadline(time.Now().Add(patience))
}
