package counted

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
)

// A Transport describes a broker to the runs. Name, Start, Create, Send, Left and Session are
// required.
type Transport struct {
	// Name is shown in reports.
	Name string
	// Start returns a broker that ends with the test. It may return a shared one if need is the
	// zero value.
	Start func(t testing.TB, need Need) Broker
	// Create makes an empty queue (topic, stream). Every run has its own.
	Create func(ctx context.Context, q Queue) error
	// Send sends messages, keeps the order of each lane, and returns nil once the broker has
	// confirmed all of them. After an error all are sent again, so a message may arrive several
	// times. A call has at most one message of a lane.
	Send func(ctx context.Context, q Queue, ms []Message) error
	// Left returns how many messages the broker still has to settle: ready, delayed and in flight.
	// For a log, it counts all records behind the committed offsets.
	Left func(ctx context.Context, q Queue) (int, error)
	// Session is how long a consumer may be silent before the broker redelivers its messages: a
	// visibility timeout, a session timeout or a heartbeat. The Opener must configure the same
	// value. Use 1 s to 6 s, because a short session makes a short run.
	Session time.Duration
	// Options are passed to every process in [Spec.Options].
	Options map[string]string

	// Points are the transport's own fault points (package fault) at which consumers are also
	// killed.
	Points []string
	// Ordered means that the source sets an OrderingKey and keeps its order. Then every run
	// requires the order.
	Ordered bool
	// Sequential means that a single receiver sees first deliveries in the order in which the
	// broker stored them. Then the sink run requires each aggregate's order.
	Sequential bool
	// Window is how many acknowledged deliveries may be redelivered after one SIGKILL. 0: not
	// checked.
	Window int
	// Rate is a number of orders a second that two consumers can certainly handle. It bounds the
	// load. Default 100.
	Rate int
	// MaxBody is the largest body in octets. Default 1 MiB.
	MaxBody int

	// Committed returns the next offset to read of each partition, by its name in
	// [pawl.Delivery.Log]. Set it only for a log.
	Committed func(ctx context.Context, q Queue) (map[string]int64, error)
	// Forget makes the broker lose the queue and have an empty one with its name: a recreated topic
	// or stream, a truncated log.
	Forget func(ctx context.Context, q Queue) error
}

// A Need describes what a run does to its broker.
type Need struct {
	// Alone means that the broker will be killed and must not be shared.
	Alone bool
	// Proxy is the address of a proxy in front of the broker, or "". One consumer connects through
	// it. A broker that tells clients where to connect must tell this address to clients of the
	// proxy, and implement [Fronted].
	Proxy string
}

// A Broker is a running broker. A *brokers.Server is one. The runs that kill it need a [Mortal].
type Broker interface {
	// Addr is where clients connect, as in 127.0.0.1:19092.
	Addr() string
}

// A Mortal is a broker that can be killed and started again on its data.
type Mortal interface {
	Broker
	Kill()
	Start(ctx context.Context) error
}

// A Fronted is a broker with a separate listener for a proxy.
type Fronted interface {
	Broker
	// Behind is the address to which the proxy forwards.
	Behind() string
}

// A Queue is one queue, topic or stream of a run.
type Queue struct {
	Broker Broker
	Name   string
	// Partitions is the number of partitions of a log. Other brokers ignore it.
	Partitions int
}

// A Message is what a run sends.
type Message struct {
	// ID is unique for each message. It stays the same when Send is called again after an error.
	ID string
	// Key is the idempotency key. If it is empty, the source must find no key in the message.
	Key string
	// Lane is the ordering key: a message group, a record key, a routing key. If the transport is
	// Ordered, the source returns it as OrderingKey.
	Lane string
	Body []byte
}

// A Spec describes what a process opens.
type Spec struct {
	Addr    string // the broker, or the proxy in front of it
	Name    string // the queue, topic or stream
	Worker  int    // number of the process, from 1; its replacement has the same
	Session time.Duration
	Mutant  string // a mutant of the transport; "" if the source must work correctly
	Options map[string]string
}

// An Opener opens a source or a sink in a worker process. Do not set hooks: the run observes events
// through the hooks of the context. If Sink is nil, no run publishes.
type Opener struct {
	Source func(ctx context.Context, s Spec) (pawl.Source, error)
	Sink   func(ctx context.Context, s Spec) (pawl.Sink, error)
}

func (t Transport) maxBody() int {
	if t.MaxBody == 0 {
		return 1 << 20
	}
	return t.MaxBody
}
