package transporttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/receipt"
)

// A Broker is what the suite is run on.
type Broker struct {
	// Open makes a queue of its own, removed when the test ends.
	Open func(t *testing.T) Queue
	// Alone makes a queue on a broker of its own, which the suite kills and starts again: Queue.Bounce is set. nil: that is not tried.
	Alone func(t *testing.T) Queue
	// Features that the broker has.
	Features Features
	// MostBody is the size of the largest body that the suite sends, in octets. Default 1 MiB.
	MostBody int
	// Timeout is how long the suite waits for what must come. Default 30 s.
	Timeout time.Duration
	// Quiet is how long it waits to see that nothing comes. Default 500 ms.
	Quiet time.Duration
}

// Features are what brokers differ in. What is false is not tried, but for Sticky and NoMessageID, which say what is not promised.
// What a source says of itself is believed too: of one that acknowledges in order ([pawl.SourceInfo]), what was acknowledged out of order may
// come again, and a [pawl.Finisher] or a [pawl.Revocable] is treated as package consumer would.
type Features struct {
	Ordered       bool // deliveries of an ordering key come in the order of the sends, to one receiver while it holds one of them
	Counted       bool // Delivery.Receives counts redeliveries
	ReleaseDelay  bool // Release keeps a delivery back for the delay
	CrashRedelive bool // what a receiver that is gone held comes again: Queue.Abandon is set
	SentAt        bool // Delivery.SentAt is set
	Sticky        bool // what is released comes to the receiver that released it, while that is open; others are not tried
	NoMessageID   bool // Delivery.MessageID may be empty
	Reconnects    bool // a source that has lost its connection goes on by itself: Queue.Disconnect is set
	Revoked       bool // what a source holds may go elsewhere while it lives: Queue.Revoke is set, and CrashRedelive
	Octets        bool // a body may be any octets; else it is text
	EmptyBodies   bool // a body may have no octets
	// BinaryAttributes: the value of an attribute may be any octets. What is no text arrives under the attribute's name and ";base64", in
	// standard base64.
	BinaryAttributes bool
	// Narrow: a receiver that holds deliveries is given nothing that is sent meanwhile, as its
	// window is configured so. Tests that need that are left out.
	Narrow bool
	// Single: a receiver holds one delivery at a time, as its window is configured so. It is Narrow
	// too. Tests that need several are left out.
	Single bool
	// BinaryKeys: an ordering key may be any octets. It arrives as text, another one for each key. Only if Ordered.
	BinaryKeys bool
}

func (f Features) narrow() bool { return f.Narrow || f.Single }

// A Queue is one queue of a broker.
type Queue struct {
	// Send puts a message into the queue. OrderingKey is set if the broker is Ordered.
	Send func(ctx context.Context, m Message) error
	// Source opens another receiver on the queue, as another process would.
	Source func(t *testing.T) pawl.Source
	// Abandon ends a source as a crash would: what it holds is neither acknowledged nor released, and not held any more. What it has
	// acknowledged has reached the broker.
	Abandon func(pawl.Source)
	// Disconnect cuts the connection of a source, as a failure of the network would. What it holds is still held afterwards, or comes again.
	Disconnect func(pawl.Source)
	// Revoke takes away what a source holds, begun or not, as a broker does that takes the source for dead: it comes again, to this source
	// or to another. The source lives on, and may not know yet.
	Revoke func(pawl.Source)
	// Bounce kills the broker and starts it again on the same address. It returns when the broker takes connections.
	Bounce func() error
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
	out    map[any]func()       // by handle: gives back what the test took and did not settle
	ended  map[pawl.Source]bool // finished, or abandoned
}

func (b Broker) bench(t *testing.T, open func(*testing.T) Queue) *bench {
	t.Helper()
	t.Parallel()
	one := &bench{T: t, Broker: b, queue: open(t), out: map[any]func(){}, ended: map[pawl.Source]bool{}}
	one.has("Abandon", b.Features.CrashRedelive || b.Features.Revoked, one.queue.Abandon != nil)
	one.has("Disconnect", b.Features.Reconnects, one.queue.Disconnect != nil)
	one.has("Revoke", b.Features.Revoked, one.queue.Revoke != nil)
	one.source = one.another()
	return one
}

// has fails a test whose broker declares a feature and lacks the function for it.
func (b *bench) has(field string, needed, there bool) {
	b.Helper()
	if needed && !there {
		b.Fatalf("the Features need Queue.%s", field)
	}
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
		if !b.ended[s] {
			_ = leave(context.Background(), s)
		}
	})
	return s
}

// next is where what a source released is looked for: at another one, as a rule.
func (b *bench) next(s pawl.Source) pawl.Source {
	b.Helper()
	if b.Features.Sticky {
		return s
	}
	return b.another()
}

// finish ends a stopped source for good, as consumer does: after it, what it held is another's.
func (b *bench) finish(s pawl.Source) {
	b.Helper()
	b.ended[s] = true
	b.must(leave(b.Context(), s))
}

// leaveTime is how long a source has to leave.
const leaveTime = 10 * time.Second

// leave finishes a source that owns something beyond its deliveries.
func leave(ctx context.Context, s pawl.Source) error {
	f, owns := s.(pawl.Finisher)
	if !owns {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	return f.Finish(ctx)
}

func (b *bench) abandon(s pawl.Source) {
	b.ended[s] = true
	b.queue.Abandon(s)
}

// begun asks as consumer does, for each delivery once, whether it is still held, and returns those that are.
func begun(s pawl.Source, ds []pawl.Delivery) []pawl.Delivery {
	r, may := s.(pawl.Revocable)
	if !may {
		return ds
	}
	return slices.DeleteFunc(ds, func(d pawl.Delivery) bool { return !r.StillHeld(d) })
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
		b.must(b.queue.Send(b.Context(), b.message(key, []byte("body of "+key))))
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

// took begins deliveries, and notes that the test has them, to be given back at its end.
func (b *bench) took(from pawl.Source, ds []pawl.Delivery) []pawl.Delivery {
	ds = begun(from, ds)
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
		if ds = b.took(from, ds); len(ds) > 0 {
			return ds
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
