package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

// A natsBroker is a private NATS server. Each queue is a stream with one durable consumer of the
// same name.
type natsBroker struct {
	server *brokers.Server
	js     jetstream.JetStream
	queues []string
}

var nats = broker.Kind{
	Title:  "NATS",
	Points: []string{"nats.ack.before", "nats.ack.after"},
	Open:   openNATS,
	Source: func(ctx context.Context, address, queue string, hooks pawl.Hooks) (pawl.Source, error) {
		js, err := connectNATS(address)
		if err != nil {
			return nil, err
		}
		return pawlnats.Open(ctx, js, queue, queue, pawlnats.Config{Wait: time.Second, Hooks: hooks})
	},
	Sink: func(ctx context.Context, address, queue string) (pawl.Sink, error) {
		js, err := connectNATS(address)
		if err != nil {
			return nil, err
		}
		return pawlnats.OpenSink(ctx, js, queue, pawlnats.SinkConfig{Subject: queue})
	},
}

// connectNATS opens a connection that lasts as long as the process.
func connectNATS(address string) (jetstream.JetStream, error) {
	conn, err := natsgo.Connect(address, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return jetstream.New(conn)
}

func openNATS(ctx context.Context, o broker.Options, queues ...string) (broker.Broker, error) {
	server, err := brokers.NATS(ctx, brokers.Options{Log: o.Log})
	if err != nil {
		return nil, err
	}
	b := &natsBroker{server: server, queues: queues}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *natsBroker) prepare(ctx context.Context) (err error) {
	if b.js, err = connectNATS(b.Location().Address); err != nil {
		return err
	}
	for _, queue := range b.queues {
		stream, err := b.js.CreateStream(ctx, jetstream.StreamConfig{Name: queue, Subjects: []string{queue}, MaxAge: 24 * time.Hour})
		if err != nil {
			return err
		}
		if _, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: queue, AckPolicy: jetstream.AckExplicitPolicy, AckWait: broker.Visibility, MaxDeliver: -1}); err != nil {
			return err
		}
	}
	return nil
}

func (b *natsBroker) Location() broker.Location {
	return broker.Location{Kind: "nats", Address: "nats://" + b.server.Addr()}
}

func (b *natsBroker) Close() error {
	if b.js != nil {
		b.js.Conn().Close()
	}
	return b.server.Stop()
}

// Send publishes each message until it is confirmed.
func (b *natsBroker) Send(ctx context.Context, queue string, ms ...broker.Message) error {
	var under []jetstream.PubAckFuture
	for _, m := range ms {
		out := &natsgo.Msg{Subject: queue, Data: m.Payload, Header: natsgo.Header{pawlnats.DefaultKeyHeader: {m.Key}}}
		future, err := b.js.PublishMsgAsync(out)
		if err != nil {
			return err
		}
		under = append(under, future)
	}
	for _, future := range under {
		select {
		case <-future.Ok():
		case <-future.Err(): // not confirmed: send it again
			if _, err := b.js.PublishMsg(ctx, future.Msg()); err != nil {
				return fmt.Errorf("a message is not confirmed: %w", err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Count reads the state of each consumer.
func (b *natsBroker) Count(ctx context.Context) (c broker.Count, err error) {
	c.Received = -1
	for _, queue := range b.queues {
		consumer, err := b.js.Consumer(ctx, queue, queue)
		if err != nil {
			return c, err
		}
		info := consumer.CachedInfo()
		c.Sent += int64(info.Delivered.Stream) + int64(info.NumPending)
		c.Open += int(info.NumPending) + info.NumAckPending
		c.Done += int64(info.AckFloor.Stream)
	}
	return c, nil
}
