//go:build proof

package pawlrabbitmq_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
	"github.com/pawl-go/pawl/transport/transporttest"
)

func TestAcceptance_Quorum(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, broker(sharedServer(t), quorum(), pawlrabbitmq.Config{}))
}

func TestAcceptance_SingleActiveConsumer(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, broker(sharedServer(t), single(), pawlrabbitmq.Config{OrderingKey: pawlrabbitmq.ByHeader("account")}))
}

func TestAcceptance_Classic(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, broker(sharedServer(t), nil, pawlrabbitmq.Config{AllowClassic: true}))
}

// broker describes queues on a server for the suite.
func broker(server *rabbit, args amqp.Table, cfg pawlrabbitmq.Config) transporttest.Broker {
	ordered := cfg.OrderingKey != nil
	open := func(t *testing.T, server *rabbit) (string, transporttest.Queue) {
		f := queueOn(t, server, args)
		var mu sync.Mutex
		knives := map[pawl.Source]*knife{}
		cut := func(s pawl.Source, dead bool) {
			mu.Lock()
			defer mu.Unlock()
			knives[s].cut(dead)
		}
		return f.queue, transporttest.Queue{
			Send: f.sendSuite,
			Source: func(t *testing.T) pawl.Source {
				g := &fixture{TB: t, server: f.server, queue: f.queue}
				s, k := g.open(cfg)
				mu.Lock()
				defer mu.Unlock()
				knives[s] = k
				return s
			},
			Abandon:    func(s pawl.Source) { cut(s, true) },
			Disconnect: func(s pawl.Source) { cut(s, false) },
			Revoke:     func(s pawl.Source) { cut(s, false) },
			Bounce: func() error {
				server.Kill()
				return server.Start(context.Background())
			},
		}
	}
	b := transporttest.Broker{
		Open: func(t *testing.T) transporttest.Queue {
			_, q := open(t, server)
			return q
		},
		Alone: func(t *testing.T) transporttest.Queue {
			alone := startServer(t)
			name, q := open(t, alone)
			rooted(t, alone, name)
			return q
		},
		Features: transporttest.Features{Ordered: ordered, Counted: !cfg.AllowClassic, ReleaseDelay: true, CrashRedelive: true, Sticky: true, Reconnects: true,
			Revoked: true, Octets: true, EmptyBodies: true, BinaryAttributes: true, BinaryKeys: ordered, Single: cfg.Prefetch == 1},
	}
	if args["x-queue-type"] != "quorum" || ordered {
		// Starting another server is slow, and the counted runs kill theirs anyway.
		b.Alone = nil
	}
	return b
}

// sendSuite sends a message of the suite, on a new connection if the last one is lost.
func (f *fixture) sendSuite(_ context.Context, m transporttest.Message) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	if f.conn.IsClosed() || f.ch.IsClosed() {
		conn, err := dialer(f.server.Addr())()
		if err != nil {
			return err
		}
		f.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) })
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		if err := ch.Confirm(false); err != nil {
			return err
		}
		f.conn, f.ch = conn, ch
	}
	p := amqp.Publishing{MessageId: m.Key, Body: m.Payload, DeliveryMode: amqp.Persistent, Headers: amqp.Table{}}
	for name, value := range m.Attributes {
		p.Headers[name] = value
	}
	if m.OrderingKey != "" {
		p.Headers["account"] = m.OrderingKey
	}
	confirm, err := f.ch.PublishWithDeferredConfirm("", f.queue, true, false, p)
	if err != nil {
		return err
	}
	if !confirm.Wait() {
		return fmt.Errorf("not confirmed: channel closed %v", f.ch.IsClosed())
	}
	return nil
}
