package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// A rabbitBroker is a private RabbitMQ. Each queue is a quorum queue.
type rabbitBroker struct {
	server     *brokers.Server
	management string
	queues     []string

	mu      sync.Mutex // one caller at a time uses the channel
	conn    *amqp.Connection
	channel *amqp.Channel
	sent    int64
	empty   time.Time // since when no message is left, as far as known
}

var rabbitmq = broker.Kind{
	Title:  "RabbitMQ",
	Points: []string{"rabbitmq.ack.before", "rabbitmq.ack.after"},
	Open:   openRabbitMQ,
	Source: func(ctx context.Context, address, queue string, hooks pawl.Hooks) (pawl.Source, error) {
		return pawlrabbitmq.Open(ctx, pawlrabbitmq.URL(address), queue, pawlrabbitmq.Config{Wait: time.Second, Prefetch: 50, Hooks: hooks})
	},
	Sink: func(ctx context.Context, address, queue string) (pawl.Sink, error) {
		return pawlrabbitmq.OpenSink(ctx, pawlrabbitmq.URL(address), "", pawlrabbitmq.SinkConfig{RoutingKey: queue})
	},
}

func openRabbitMQ(ctx context.Context, o broker.Options, queues ...string) (broker.Broker, error) {
	port, err := brokers.FreePort()
	if err != nil {
		return nil, err
	}
	server, err := brokers.RabbitMQ(ctx, brokers.Options{Log: o.Log, Settings: map[string]string{brokers.ManagementPort: strconv.Itoa(port)}})
	if err != nil {
		return nil, err
	}
	b := &rabbitBroker{server: server, management: "http://guest:guest@127.0.0.1:" + strconv.Itoa(port), queues: queues}
	if err := b.prepare(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *rabbitBroker) prepare() (err error) {
	if b.conn, err = amqp.Dial(b.Location().Address); err != nil {
		return err
	}
	if b.channel, err = b.conn.Channel(); err != nil {
		return err
	}
	for _, queue := range b.queues {
		if _, err := b.channel.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
			return err
		}
	}
	return b.channel.Confirm(false)
}

func (b *rabbitBroker) Location() broker.Location {
	return broker.Location{Kind: "rabbitmq", Address: "amqp://guest:guest@" + b.server.Addr() + "/"}
}

func (b *rabbitBroker) Close() error {
	if b.conn != nil {
		_ = b.conn.Close()
	}
	return b.server.Stop()
}

// Send publishes messages and waits for the confirmation of each.
func (b *rabbitBroker) Send(ctx context.Context, queue string, ms ...broker.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for chunk := range slices.Chunk(ms, 200) {
		var under []*amqp.DeferredConfirmation
		for _, m := range chunk {
			confirm, err := b.channel.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false,
				amqp.Publishing{MessageId: m.Key, Body: m.Payload, DeliveryMode: amqp.Persistent})
			if err != nil {
				return err
			}
			under = append(under, confirm)
		}
		for _, confirm := range under {
			taken, err := confirm.WaitContext(ctx)
			switch {
			case err != nil:
				return err
			case !taken:
				return errors.New("RabbitMQ refused a message")
			}
			b.sent++
		}
	}
	return nil
}

// managementLag is how far the management API may lag.
const managementLag = 3 * time.Second

// Count counts the messages that are left. AMQP counts ready messages at once. The management API
// counts all, some seconds late. The queues count as empty after both have said so for
// managementLag.
func (b *rabbitBroker) Count(ctx context.Context) (c broker.Count, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.Received, c.Sent = -1, b.sent
	for _, queue := range b.queues {
		state, err := b.channel.QueueDeclarePassive(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
		if err != nil {
			return c, err
		}
		c.Open += state.Messages
	}
	c.Done = b.sent - int64(c.Open)
	if c.Open == 0 {
		if c.Open, err = b.managed(ctx); err != nil {
			return c, err
		}
	}
	switch {
	case c.Open > 0:
		b.empty = time.Time{}
	case b.empty.IsZero():
		b.empty = time.Now()
		fallthrough
	case time.Since(b.empty) < managementLag:
		c.Open = 1
	}
	return c, nil
}

// managed counts messages through the management API.
func (b *rabbitBroker) managed(ctx context.Context) (all int, err error) {
	for _, queue := range b.queues {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.management+"/api/queues/%2F/"+queue, nil)
		if err != nil {
			return 0, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		var q struct{ Messages *int }
		err = json.NewDecoder(answer.Body).Decode(&q)
		_ = answer.Body.Close()
		switch {
		case err != nil:
			return 0, err
		case q.Messages == nil:
			return 1, nil // not known yet
		}
		all += *q.Messages
	}
	return all, nil
}
