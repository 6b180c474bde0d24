// Package broker is where the messages of the demo and of the crash lab are: an SQS inside this process, or a real broker of our own.
package broker

import (
	"context"
	"fmt"
	"slices"

	"github.com/pawl-go/pawl"
)

// A Broker holds a few queues, whatever it calls them. Worker processes reach it by its Place.
type Broker interface {
	// Place is what a worker needs to receive and to publish.
	Place() Place
	// Send returns nil once the broker is known to have each message. It sends again what may not have arrived, as a producer must.
	Send(ctx context.Context, queue string, ms ...Message) error
	// Count says how far all queues are.
	Count(ctx context.Context) (Count, error)
	// Close stops the broker. What is in it is gone.
	Close() error
}

// A Message is one to be sent.
type Message struct {
	Key     string
	Payload []byte
}

// A Count says how far queues are.
type Count struct {
	Sent     int64 // messages that the broker has taken
	Open     int   // of them, those that are not acknowledged
	Done     int64 // grows with every one that is
	Received int64 // how often messages were handed out, those of the first queue; -1: the broker does not say
}

// A Place says where a broker is.
type Place struct {
	Kind    string // one of Kinds
	Address string
}

// A kind of broker.
type kind struct {
	name   string // as people write it
	open   func(ctx context.Context, o Options, queues []string) (Broker, error)
	source func(ctx context.Context, address, queue string, hooks pawl.Hooks) (pawl.Source, error)
	sink   func(ctx context.Context, address, queue string) (pawl.Sink, error)
	points []string // where a worker can be killed, beside those of the consumer
}

var kinds = map[string]kind{"sqs": sqs, "nats": nats, "rabbitmq": rabbitmq, "kafka": kafka}

// Kinds are the names of the brokers that can be opened.
func Kinds() []string {
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Options choose a broker.
type Options struct {
	Kind string            // one of Kinds
	Seed uint64            // decides the faults of the SQS in this process
	Log  func(line string) // receives a line before something slow
}

// Open starts a broker and makes queues in it.
func Open(ctx context.Context, o Options, queues ...string) (Broker, error) {
	k, known := kinds[o.Kind]
	if !known {
		return nil, fmt.Errorf("there is no broker %q, only %q", o.Kind, Kinds())
	}
	return k.open(ctx, o, queues)
}

// Title is the broker's name as people write it.
func Title(name string) string { return kinds[name].name }

// Points are the fault points of a broker's transport.
func Points(name string) []string { return kinds[name].points }

// Source receives from a queue, and tells hooks what it receives.
func (p Place) Source(ctx context.Context, queue string, hooks pawl.Hooks) (pawl.Source, error) {
	return kinds[p.Kind].source(ctx, p.Address, queue, hooks)
}

// Sink publishes to a queue.
func (p Place) Sink(ctx context.Context, queue string) (pawl.Sink, error) {
	return kinds[p.Kind].sink(ctx, p.Address, queue)
}
