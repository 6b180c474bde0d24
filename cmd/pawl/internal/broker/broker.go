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

// A Kind of broker.
type Kind struct {
	Title  string // as people write it
	Open   func(ctx context.Context, o Options, queues []string) (Broker, error)
	Source func(ctx context.Context, address, queue string, hooks pawl.Hooks) (pawl.Source, error)
	Sink   func(ctx context.Context, address, queue string) (pawl.Sink, error)
	Points []string // where a worker can be killed, beside those of the consumer
}

// kinds are the brokers whose client is in this binary. Command pawl has SQS alone; command
// pawl-brokers registers the others.
var kinds = map[string]Kind{"sqs": sqs}

// Register adds a broker. It is called before anything else of this package.
func Register(name string, k Kind) { kinds[name] = k }

// elsewhere are the brokers whose clients are in command pawl-brokers.
var elsewhere = []string{"kafka", "nats", "rabbitmq"}

// Kinds are the names of all brokers.
func Kinds() []string { return append(slices.Clone(elsewhere), "sqs") }

// Check returns why the broker of a name cannot be opened, or nil.
func Check(name string) error {
	if _, here := kinds[name]; here {
		return nil
	}
	if slices.Contains(elsewhere, name) {
		return fmt.Errorf("this program has no client of %s: run pawl-brokers, which is pawl with all brokers (in a clone: go run ./cmd/pawl/pawl-brokers)", name)
	}
	return fmt.Errorf("there is no broker %q, only %q", name, Kinds())
}

// Options choose a broker.
type Options struct {
	Kind string            // one of Kinds
	Seed uint64            // decides the faults of the SQS in this process
	Log  func(line string) // receives a line before something slow
}

// Open starts a broker and makes queues in it.
func Open(ctx context.Context, o Options, queues ...string) (Broker, error) {
	if err := Check(o.Kind); err != nil {
		return nil, err
	}
	return kinds[o.Kind].Open(ctx, o, queues)
}

// Title is the broker's name as people write it.
func Title(name string) string { return kinds[name].Title }

// Points are the fault points of a broker's transport.
func Points(name string) []string { return kinds[name].Points }

// Source receives from a queue, and tells hooks what it receives.
func (p Place) Source(ctx context.Context, queue string, hooks pawl.Hooks) (pawl.Source, error) {
	return kinds[p.Kind].Source(ctx, p.Address, queue, hooks)
}

// Sink publishes to a queue.
func (p Place) Sink(ctx context.Context, queue string) (pawl.Sink, error) {
	return kinds[p.Kind].Sink(ctx, p.Address, queue)
}
