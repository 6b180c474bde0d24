package transporttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
)

// A Broker is the broker under test.
type Broker struct {
	// Open creates a new queue, removed when the test ends.
	Open func(t *testing.T) Queue
	// Alone creates a queue on a broker that the suite kills and restarts; Queue.Bounce must be
	// set. If nil, that test is skipped.
	Alone func(t *testing.T) Queue
	// Features are the features of the broker.
	Features Features
	// MostBody is the size of the largest body that the suite sends, in octets. Default 1 MiB.
	MostBody int
	// Timeout is how long the suite waits for expected deliveries. Default 30 s.
	Timeout time.Duration
	// Quiet is how long the suite waits to see that no delivery comes. Default 500 ms.
	Quiet time.Duration
}

// Features are the differences between brokers. A false feature is not tested. Sticky, NoMessageID,
// Narrow and Single are exceptions: they declare limits. The suite also respects the source itself.
// If it acknowledges in order ([pawl.SourceInfo]), a delivery acknowledged out of order may come
// again. A [pawl.Finisher] or a [pawl.Revocable] is treated as package consumer treats it.
type Features struct {
	// Ordered: an ordering key's deliveries keep the order of sends, and go to one receiver while
	// it holds one of them.
	Ordered       bool
	Counted       bool // Delivery.Receives counts redeliveries
	ReleaseDelay  bool // Release delays the redelivery
	CrashRedelive bool // deliveries of a crashed receiver come again; needs Queue.Abandon
	SentAt        bool // Delivery.SentAt is set
	// Sticky: a released delivery returns to the receiver that released it, while that is open.
	Sticky      bool
	NoMessageID bool // Delivery.MessageID may be empty
	Reconnects  bool // a source reconnects by itself; needs Queue.Disconnect
	// Revoked: the broker may revoke deliveries from a live source. It needs Queue.Revoke and
	// Queue.Abandon.
	Revoked     bool
	Octets      bool // a body may have any octets; if false, it is text
	EmptyBodies bool // a body may be empty
	// BinaryAttributes: an attribute's value may have any octets. A binary one arrives under the
	// attribute's name and ";base64", in standard base64.
	BinaryAttributes bool
	// Narrow: a receiver's window is so small that it gets no new messages while it holds
	// deliveries. Tests that need more are skipped.
	Narrow bool
	// Single: a receiver holds one delivery at a time. It is Narrow too. Tests that need several
	// are skipped.
	Single bool
	// BinaryKeys: an ordering key may have any octets. It arrives as text, a different one for each
	// key. Only with Ordered.
	BinaryKeys bool
}

func (f Features) narrow() bool { return f.Narrow || f.Single }

// A Queue is one queue of a broker.
type Queue struct {
	// Send sends a message to the queue. Its OrderingKey is set if the broker is Ordered.
	Send func(ctx context.Context, m Message) error
	// Source opens another receiver on the queue, as another process would.
	Source func(t *testing.T) pawl.Source
	// Abandon ends a source like a crash. Its deliveries are neither acknowledged nor released, and
	// no longer held. Its acknowledgements have reached the broker.
	Abandon func(pawl.Source)
	// Disconnect cuts the connection of a source, like a network failure. Its deliveries stay held
	// or come again.
	Disconnect func(pawl.Source)
	// Revoke takes all deliveries from a source, started or not, like a broker that takes the
	// source for dead. They come again, to this source or to another. The source lives on, and may
	// not notice at once.
	Revoke func(pawl.Source)
	// Bounce kills the broker and restarts it on the same address. It returns when the broker
	// accepts connections.
	Bounce func() error
}

// A Message is a message to send.
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
	out    map[any]func()       // by handle: releases deliveries that the test has not settled
	ended  map[pawl.Source]bool // finished or abandoned
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

// has fails the test if a declared feature lacks its function.
func (b *bench) has(field string, needed, there bool) {
	b.Helper()
	if needed && !there {
		b.Fatalf("the Features need Queue.%s", field)
	}
}

// another opens a receiver and ends it after the test, as a consumer would.
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

// next returns the source that receives a delivery released by s: usually another one.
func (b *bench) next(s pawl.Source) pawl.Source {
	b.Helper()
	if b.Features.Sticky {
		return s
	}
	return b.another()
}

// finish ends a stopped source for good, as a consumer does. Its deliveries then go to others.
func (b *bench) finish(s pawl.Source) {
	b.Helper()
	b.ended[s] = true
	b.must(leave(b.Context(), s))
}

const leaveTime = 10 * time.Second

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

// begun returns the deliveries still held. It asks once for each, as a consumer does.
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

// send sends messages with bodies made from their keys, each in its own order if the broker is
// Ordered.
func (b *bench) send(keys ...string) {
	b.Helper()
	for _, key := range keys {
		b.must(b.queue.Send(b.Context(), b.message(key, []byte("body of "+key))))
	}
}

// sendIn sends messages of one ordering key, with keys "group/key".
func (b *bench) sendIn(group string, keys ...string) {
	b.Helper()
	for _, key := range keys {
		b.must(b.queue.Send(b.Context(), Message{Key: group + "/" + key, OrderingKey: group, Payload: []byte(key)}))
	}
}

// get receives until it has n deliveries, and starts them.
func (b *bench) get(from pawl.Source, n int) []pawl.Delivery {
	b.Helper()
	return b.receive(from, n, b.took)
}

// waiting receives n deliveries and starts none.
func (b *bench) waiting(from pawl.Source, n int) []pawl.Delivery {
	b.Helper()
	return b.receive(from, n, func(_ pawl.Source, ds []pawl.Delivery) []pawl.Delivery { return ds })
}

func (b *bench) receive(from pawl.Source, n int, keep func(pawl.Source, []pawl.Delivery) []pawl.Delivery) (all []pawl.Delivery) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.Timeout)
	defer cancel()
	for len(all) < n {
		ds, err := from.Receive(ctx, n-len(all))
		if err != nil {
			b.Fatalf("received %d of %d: %v", len(all), n, err)
		}
		all = append(all, keep(from, ds)...)
	}
	return all
}

// took starts deliveries and registers them to be released after the test.
func (b *bench) took(from pawl.Source, ds []pawl.Delivery) []pawl.Delivery {
	ds = begun(from, ds)
	for _, d := range ds {
		b.out[d.Handle] = func() { _ = from.Release(context.Background(), 0, d) }
	}
	return ds
}

// some receives until deliveries come, at most most.
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

// ackInOrder acknowledges deliveries that must follow the first n of a group, and returns the new
// n.
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

// none receives for Quiet and expects no delivery. The source itself releases deliveries that
// arrive after ctx ends.
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

// stop ends a source as a consumer does: one more Receive with a context that has ended.
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
	b.forget(ds...)
	b.must(s.Ack(b.Context(), receipts(ds...)...))
}

func (b *bench) release(s pawl.Source, delay time.Duration, ds ...pawl.Delivery) {
	b.Helper()
	b.forget(ds...)
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
