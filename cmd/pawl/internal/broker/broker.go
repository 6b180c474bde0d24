// Package broker holds the messages of the demo and of the crash lab, in an SQS inside this process
// or in a private broker.
package broker

import (
	"context"
	"fmt"
	"slices"

	"github.com/pawl-go/pawl"
)

// A Broker holds a few queues. Worker processes reach it by its Location.
type Broker interface {
	// Location returns the address for workers.
	Location() Location
	// Send returns nil once the broker has confirmed each message. Like any producer, it resends
	// unconfirmed messages.
	Send(ctx context.Context, queue string, ms ...Message) error
	// Count returns the progress of all queues.
	Count(ctx context.Context) (Count, error)
	// Close stops the broker and deletes its contents.
	Close() error
}

// A Message is a message to send.
type Message struct {
	Key     string
	Payload []byte
}

// A Count is the progress of the queues.
type Count struct {
	Sent     int64 // messages that the broker accepted
	Open     int   // of those, messages not acknowledged
	Done     int64 // grows with every acknowledged message
	Received int64 // deliveries of the first queue, redeliveries included; -1: not known
}

// A Location is the kind and address of a broker.
type Location struct {
	Kind    string // one of Kinds
	Address string
}

// A Kind is a kind of broker.
type Kind struct {
	Title string // for people
	// Open starts a broker and creates queues in it.
	Open   func(ctx context.Context, o Options, queues ...string) (Broker, error)
	Source func(ctx context.Context, address, queue string, hooks pawl.Hooks) (pawl.Source, error)
	Sink   func(ctx context.Context, address, queue string) (pawl.Sink, error)
	Points []string // crash points of a worker, in addition to those of the consumer
}

// kinds are the brokers whose client is in this binary. Command pawl has only SQS; command
// pawl-brokers registers the others.
var kinds = map[string]Kind{"sqs": sqs}

// Register adds a broker. Call it before any other function of this package.
func Register(name string, k Kind) { kinds[name] = k }

// elsewhere are the brokers whose clients are in command pawl-brokers.
var elsewhere = []string{"kafka", "nats", "rabbitmq"}

// Kinds returns the names of all brokers.
func Kinds() []string { return append(slices.Clone(elsewhere), "sqs") }

// Named returns a kind of broker, or why this program cannot open one.
func Named(name string) (Kind, error) {
	k, here := kinds[name]
	switch {
	case here:
		return k, nil
	case slices.Contains(elsewhere, name):
		return k, fmt.Errorf("this program has no client of %s: run pawl-brokers, which is pawl with all brokers (in a clone: go run ./cmd/pawl/pawl-brokers)", name)
	}
	return k, fmt.Errorf("there is no broker %q, only %q", name, Kinds())
}

// Options of a broker that is opened.
type Options struct {
	Seed uint64            // of the faults of the SQS in this process
	Log  func(line string) // receives a line before a slow step
}

// Source receives from a queue and reports to hooks.
func (l Location) Source(ctx context.Context, queue string, hooks pawl.Hooks) (pawl.Source, error) {
	return kinds[l.Kind].Source(ctx, l.Address, queue, hooks)
}

// Sink publishes to a queue.
func (l Location) Sink(ctx context.Context, queue string) (pawl.Sink, error) {
	return kinds[l.Kind].Sink(ctx, l.Address, queue)
}
