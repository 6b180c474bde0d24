package counted

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
)

// A Transport is what the runs need to know of a broker. Name, Start, Create, Send, Left and Session are required.
type Transport struct {
	// Name is shown in reports.
	Name string
	// Start returns a broker that ends with the test. It may return a shared one if need is the zero Need.
	Start func(t testing.TB, need Need) Broker
	// Create makes an empty queue (topic, stream). Every run has its own.
	Create func(ctx context.Context, q Queue) error
	// Send sends messages, those of one lane in their order, and returns nil once the broker has confirmed all of them. After an error all
	// are sent again, so a message may arrive several times. A call holds at most one message of a lane.
	Send func(ctx context.Context, q Queue, ms []Message) error
	// Left returns how many messages the broker still has to settle: ready, delayed and handed out; of a log, all behind the committed
	// offsets.
	Left func(ctx context.Context, q Queue) (int, error)
	// Session is how long the broker waits for a consumer that is silent before it hands its messages to others: a visibility timeout, a
	// session timeout, a heartbeat. The Opener must configure the same. Short is quick: 1 to 6 s.
	Session time.Duration
	// Options reach every process in [Spec.Options].
	Options map[string]string

	// Points are fault points of the transport's own (package fault), at which consumers are killed too.
	Points []string
	// Ordered says that the source sets an OrderingKey and keeps its order. Then every run requires it.
	Ordered bool
	// Sequential says that a single receiver sees first deliveries in the order in which the broker stored them. Then the run of the sink
	// requires that order of each aggregate.
	Sequential bool
	// Window is how many deliveries that were acknowledged may come again after one SIGKILL. 0: not checked.
	Window int
	// Rate is how many orders a second two consumers can handle for sure. Loads are not higher. Default 100.
	Rate int
	// MaxBody is the largest body in octets. Default 1 MiB.
	MaxBody int

	// Committed returns for each partition, named as in [pawl.Delivery.Log], the offset that would be read next. Only of a log.
	Committed func(ctx context.Context, q Queue) (map[string]int64, error)
	// Forget makes the broker lose the queue and have an empty one of its name: a topic or stream made anew, a log truncated.
	Forget func(ctx context.Context, q Queue) error
}

// A Need is what a run will do to its broker.
type Need struct {
	// Alone says that the broker will be killed: it must not be shared.
	Alone bool
	// Proxy is the address of a proxy in front of the broker; one consumer connects through it. A broker that tells its clients where to
	// connect must name this address to those that come through the proxy, and implement [Fronted]. "" if there is none.
	Proxy string
}

// A Broker is a running broker. A *brokers.Server is one. The runs that kill it need a [Mortal].
type Broker interface {
	// Addr is where clients connect, as in 127.0.0.1:19092.
	Addr() string
}

// A Mortal is a broker that can be killed, and started again on its data.
type Mortal interface {
	Broker
	Kill()
	Start(ctx context.Context) error
}

// A Fronted is a broker with a listener of its own for a proxy.
type Fronted interface {
	Broker
	// Behind is where the proxy forwards to.
	Behind() string
}

// A Queue is one queue, topic or stream of a run.
type Queue struct {
	Broker Broker
	Name   string
	// Partitions is how many a log should have. Other brokers do not look at it.
	Partitions int
}

// A Message is what a run sends.
type Message struct {
	// ID is of its own for each send. It is the same when Send is called again after an error.
	ID string
	// Key is the idempotency key. If it is empty, send nothing that the source takes for one.
	Key string
	// Lane orders messages: a message group, a record key, a routing key. The source shows it as OrderingKey if the transport is Ordered.
	Lane string
	Body []byte
}

// A Spec says what a process opens.
type Spec struct {
	Addr    string // the broker, or the proxy in front of it
	Name    string // the queue, topic or stream
	Worker  int    // number of the process, 1 and up; its replacement has the same
	Session time.Duration
	Mutant  string // of the transport's own, to be opened broken; "" or a mutant of this package: to be opened whole
	Options map[string]string
}

// An Opener opens a source or a sink in a process that a run has started. Give them no hooks: those of the context tell the run what happens. Sink may
// be nil; then no run publishes.
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
