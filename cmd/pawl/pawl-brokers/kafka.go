package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

// A kafkaBroker is a private Apache Kafka. Each queue is a topic, consumed by one group of the same
// name.
type kafkaBroker struct {
	server *brokers.Server
	client *kgo.Client
	admin  *kadm.Client
	queues []string
}

const partitions = 6

var kafka = broker.Kind{
	Title:  "Kafka",
	Points: []string{"kafka.commit.before", "kafka.commit.after"},
	Open:   openKafka,
	Source: func(ctx context.Context, address, queue string, hooks pawl.Hooks) (pawl.Source, error) {
		opts := []kgo.Opt{kgo.SeedBrokers(address), kgo.SessionTimeout(broker.Visibility), kgo.HeartbeatInterval(broker.Visibility / 6)}
		return pawlkafka.Open(ctx, opts, queue, []string{queue}, pawlkafka.Config{Wait: time.Second, Hooks: hooks})
	},
	Sink: func(ctx context.Context, address, queue string) (pawl.Sink, error) {
		return pawlkafka.OpenSink(ctx, []kgo.Opt{kgo.SeedBrokers(address)}, []string{queue}, pawlkafka.SinkConfig{})
	},
}

func openKafka(ctx context.Context, o broker.Options, queues ...string) (broker.Broker, error) {
	server, err := brokers.Kafka(ctx, brokers.Options{Log: o.Log})
	if err != nil {
		return nil, err
	}
	b := &kafkaBroker{server: server, queues: queues}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *kafkaBroker) prepare(ctx context.Context) (err error) {
	if b.client, err = kgo.NewClient(kgo.SeedBrokers(b.server.Addr())); err != nil {
		return err
	}
	b.admin = kadm.NewClient(b.client)
	made, err := b.admin.CreateTopics(ctx, partitions, 1, nil, b.queues...)
	if err != nil {
		return err
	}
	return made.Error()
}

func (b *kafkaBroker) Location() broker.Location {
	return broker.Location{Kind: "kafka", Address: b.server.Addr()}
}

func (b *kafkaBroker) Close() error {
	if b.client != nil {
		b.client.Close()
	}
	return b.server.Stop()
}

// Send produces each message until it is acknowledged. The record's key is the order's key, so that
// copies are in one partition.
func (b *kafkaBroker) Send(ctx context.Context, queue string, ms ...broker.Message) error {
	records := make([]*kgo.Record, len(ms))
	for i, m := range ms {
		records[i] = &kgo.Record{Topic: queue, Key: []byte(m.Key), Value: m.Payload,
			Headers: []kgo.RecordHeader{{Key: pawlkafka.DefaultKeyHeader, Value: []byte(m.Key)}}}
	}
	return b.client.ProduceSync(ctx, records...).FirstErr()
}

// Count compares the end offsets of the partitions with the committed ones of the groups.
func (b *kafkaBroker) Count(ctx context.Context) (c broker.Count, err error) {
	c.Received = -1
	ends, err := b.admin.ListEndOffsets(ctx, b.queues...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return c, err
	}
	for _, queue := range b.queues {
		committed, err := b.admin.FetchOffsets(ctx, queue)
		if err != nil && !strings.Contains(err.Error(), "GROUP_ID_NOT_FOUND") {
			return c, err
		}
		for partition := range int32(partitions) {
			end, known := ends.Lookup(queue, partition)
			if !known {
				return c, errors.New("the broker does not know partition " + strconv.Itoa(int(partition)))
			}
			var done int64
			if at, has := committed.Lookup(queue, partition); has && at.At > 0 {
				done = at.At
			}
			c.Sent += end.Offset
			c.Done += done
			c.Open += int(end.Offset - done)
		}
	}
	return c, nil
}
