package transporttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
)

// A Broker is what the suite is run on.
type Broker struct {
	// Open makes a queue of its own, removed when the test ends.
	Open func(t *testing.T) Queue
	// Features that the broker has.
	Features Features
	// Timeout is how long the suite waits for what must come. Default 30 s.
	Timeout time.Duration
	// Quiet is how long it waits to see that nothing comes. Default 500 ms.
	Quiet time.Duration
}

// Features are what brokers differ in. What is false is not tried.
type Features struct {
	Ordered       bool // deliveries of an ordering key come in the order of the sends, to one receiver while it holds one of them
	Counted       bool // Delivery.Receives counts redeliveries
	ReleaseDelay  bool // Release keeps a delivery back for the delay
	CrashRedelive bool // what a receiver that is gone held comes again: Queue.Abandon is set
	SentAt        bool // Delivery.SentAt is set
}

// A Queue is one queue of a broker.
type Queue struct {
	// Send puts a message into the queue. OrderingKey is set if the broker is Ordered.
	Send func(ctx context.Context, m Message) error
	// Source opens another receiver on the queue, as another process would.
	Source func(t *testing.T) pawl.Source
	// Abandon ends a source as a crash would: what it holds is neither acknowledged nor released, and not held any more.
	Abandon func(pawl.Source)
}

// A Message is what the suite sends.
type Message struct {
	Key, OrderingKey string
	Payload          []byte
	Attributes       map[string]string
}

// bench is one queue with one source, for one test.
type bench struct {
	*testing.T
	Broker
	queue  Queue
	source pawl.Source
	out    map[any]func() // by handle: gives back what the test took and did not settle
}

func (b Broker) bench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	one := &bench{T: t, Broker: b, queue: b.Open(t), out: map[any]func(){}}
	one.source = one.another()
	return one
}

// another opens a receiver, and ends it with the test as consumer would: nothing of it outlives the test.
func (b *bench) another() pawl.Source {
	b.Helper()
	s := b.queue.Source(b.T)
	b.Cleanup(func() {
		for _, giveBack := range b.out {
			giveBack()
		}
		clear(b.out)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, _ = s.Receive(ended, 1)
	})
	return s
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// send sends messages of no order, or of one each where the broker demands one.
func (b *bench) send(keys ...string) {
	b.Helper()
	for _, key := range keys {
		m := Message{Key: key, Payload: []byte("body of " + key)}
		if b.Features.Ordered {
			m.OrderingKey = "alone-" + key
		}
		b.must(b.queue.Send(b.Context(), m))
	}
}

// sendIn sends messages of one ordering key, named group/key.
func (b *bench) sendIn(group string, keys ...string) {
	b.Helper()
	for _, key := range keys {
		b.must(b.queue.Send(b.Context(), Message{Key: group + "/" + key, OrderingKey: group, Payload: []byte(key)}))
	}
}

// get receives until it has n deliveries.
func (b *bench) get(from pawl.Source, n int) (all []pawl.Delivery) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.Timeout)
	defer cancel()
	for len(all) < n {
		ds, err := from.Receive(ctx, n-len(all))
		if err != nil {
			b.Fatalf("received %d of %d: %v", len(all), n, err)
		}
		all = append(all, b.took(from, ds)...)
	}
	return all
}

// took notes that a test has deliveries, to be given back at its end.
func (b *bench) took(from pawl.Source, ds []pawl.Delivery) []pawl.Delivery {
	for _, d := range ds {
		b.out[d.Handle] = func() { _ = from.Release(context.Background(), 0, d) }
	}
	return ds
}

// some receives until something comes, at most so many.
func (b *bench) some(from pawl.Source, most int) []pawl.Delivery {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.Timeout)
	defer cancel()
	for {
		ds, err := from.Receive(ctx, most)
		if err != nil {
			b.Fatalf("received nothing: %v", err)
		}
		if len(ds) > 0 {
			return b.took(from, ds)
		}
	}
}

// ackInOrder acknowledges deliveries that must be those behind the first n of a group, and returns how many that makes.
func (b *bench) ackInOrder(s pawl.Source, n int, group string, ds ...pawl.Delivery) int {
	b.Helper()
	for _, d := range ds {
		n++
		b.wantKey(d, fmt.Sprint(group, "/", n))
		b.ack(s, d)
	}
	return n
}

func (b *bench) one(from pawl.Source) pawl.Delivery {
	b.Helper()
	return b.get(from, 1)[0]
}

// none receives for Quiet and expects nothing. What comes after the end of its context goes back by itself.
func (b *bench) none(from pawl.Source) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.Quiet)
	defer cancel()
	for ctx.Err() == nil {
		ds, err := from.Receive(ctx, 10)
		if len(ds) > 0 {
			b.Fatalf("received %v, want nothing", keys(ds))
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			b.Fatal(err)
		}
	}
}

// stop ends a source as consumer does: Receive once more with a context that has ended.
func (b *bench) stop(s pawl.Source) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	if ds, err := s.Receive(ctx, 10); len(ds) > 0 || err == nil {
		b.Fatalf("received %v after the end, error %v", keys(ds), err)
	}
}

func (b *bench) ack(s pawl.Source, ds ...pawl.Delivery) {
	b.Helper()
	rs := make([]pawl.Receipt, len(ds))
	for i, d := range ds {
		rs[i] = receipt.Committed[pawl.Receipt](d.Handle)
		delete(b.out, d.Handle)
	}
	b.must(s.Ack(b.Context(), rs...))
}

func (b *bench) release(s pawl.Source, delay time.Duration, ds ...pawl.Delivery) {
	b.Helper()
	for _, d := range ds {
		delete(b.out, d.Handle)
	}
	b.must(s.Release(b.Context(), delay, ds...))
}

func keys(ds []pawl.Delivery) []string {
	all := make([]string, len(ds))
	for i, d := range ds {
		all[i] = d.Key
	}
	return all
}

func (b *bench) wantKey(d pawl.Delivery, want string) {
	b.Helper()
	if d.Key != want {
		b.Fatalf("received %q, want %q", d.Key, want)
	}
}

func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("key-%02d", i)
	}
	return all
}
