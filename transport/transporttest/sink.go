package transporttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// A Destination is the destination under test.
type Destination struct {
	// Open creates a new destination for events with a sink on it, removed when the test ends. Its
	// responses go through a. Messages belong to the aggregates "aggregate-00" to "aggregate-15".
	// If a refusal in a log refuses all its messages, give each aggregate its own log.
	Open func(t *testing.T, a *Responses) Outlet
	// InOrder: the protocol responds in the order of requests. Other orders are not tested.
	InOrder bool
	// Named: the error text of a refused message contains the message's id.
	Named bool
}

// An Outlet is a destination of events.
type Outlet struct {
	Sink pawl.Sink
	// Cut closes the connections of the sink. Responses in transit are lost.
	Cut func()
	// Refused changes m so that the destination refuses it. The sink must be able to carry it, and
	// other messages must not be refused with it.
	Refused func(m pawl.Message) pawl.Message
}

const aggregates = 16

// RunSink tests a sink. It tests what a relay relies on when a destination withholds, delays,
// reorders or cuts off its responses, and when the context of the call ends at any point. Each
// promise is a subtest.
func RunSink(t *testing.T, d Destination) {
	t.Helper()
	for _, s := range sinkSuite {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := &sinkBench{T: t, Destination: d, responses: newResponses(d.InOrder)}
			b.seed = rand.Uint64()
			b.Logf("seed %d", b.seed)
			b.random = rand.New(rand.NewPCG(b.seed, 0))
			b.outlet = d.Open(t, b.responses)
			s.test(b)
		})
	}
}

var sinkSuite = []struct {
	name string
	test func(*sinkBench)
}{
	{"ResponsesBelongToTheirMessages", responsesBelong},
	{"SilenceIsNoConfirmation", silence},
	{"ContextEndsAtAnyPoint", endsAtAnyPoint},
	{"LateResponsesAreOfTheirCall", lateResponses},
	{"CallsDoNotMix", callsDoNotMix},
	{"OneCallEndsNoOther", oneEndsNoOther},
	{"ConnectionEndsInTheMiddle", cutInTheMiddle},
	{"ResponsesForSomeOnly", partialResponses},
	{"BatchIsAPrefix", batchIsAPrefix},
}

// batch is the number of messages in a call, small enough for one batch of any destination.
const batch = 8

// A sinkBench is one destination of events, for one test.
type sinkBench struct {
	*testing.T
	Destination
	responses *Responses
	outlet    Outlet
	random    *rand.Rand
	seed      uint64
	calls     int
}

// messages makes n messages of different aggregates, from number first on, with ids unique to this
// call.
func (b *sinkBench) messages(first, n int) (ms []pawl.Message) {
	b.calls++
	for i := range n {
		ms = append(ms, b.message(b.id(i), first+i))
	}
	return ms
}

// id is unique among calls, and among test runs on the same broker.
func (b *sinkBench) id(i int) string { return fmt.Sprintf("%x-%d-%d", b.seed, b.calls, i) }

func (b *sinkBench) message(id string, aggregate int) pawl.Message {
	of := fmt.Sprintf("aggregate-%02d", aggregate)
	return pawl.Message{ID: id, Type: "placed", AggregateType: "order", AggregateID: of, Group: "order/" + of, Position: int64(b.calls), Time: time.Now(),
		Payload: []byte("body of " + id), Attempt: 1, Headers: map[string]string{"ce-id": id, "ce-source": "/shop", "ce-specversion": "1.0", "ce-type": "placed",
			pawl.HeaderEventID: id}}
}

// refuse changes messages so that the destination refuses them.
func (b *sinkBench) refuse(ms []pawl.Message, indexes ...int) {
	for _, i := range indexes {
		ms[i] = b.outlet.Refused(ms[i])
	}
}

func (b *sinkBench) some(n int) (indexes []int) {
	for i := range n {
		if b.random.IntN(3) == 0 {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

type publishing struct {
	ms   []pawl.Message
	done chan []error
}

func (b *sinkBench) publish(ctx context.Context, ms []pawl.Message) *publishing {
	p := &publishing{ms, make(chan []error, 1)}
	go func() { p.done <- b.outlet.Sink.Publish(ctx, ms) }()
	return p
}

// result waits for the result of Publish: an error for each message.
func (b *sinkBench) result(p *publishing) []error {
	b.Helper()
	errs := patience.Receive(b, "Publish returns", p.done)
	if len(errs) == 0 {
		errs = make([]error, len(p.ms))
	}
	if len(errs) != len(p.ms) {
		b.Fatalf("%d errors for %d messages", len(errs), len(p.ms))
	}
	p.done <- errs // keep it for later calls
	return errs
}

// ends waits until a call returns. After some polls it cancels the call's context, because the sink
// may wait for a missing response, or send again.
func ends[T any](b *sinkBench, done chan T, cancel func()) {
	b.Helper()
	const patient = 30 // polls
	polls := 0
	patience.Until(b, "the call returns", func() bool {
		if polls++; polls == patient {
			cancel()
		}
		return len(done) == 1
	})
	cancel()
}

// sound fails the test if a message counts as published without a confirmation by the destination.
func (b *sinkBench) sound(p *publishing) {
	b.Helper()
	for i, err := range b.result(p) {
		if err == nil && !b.responses.confirms(p.ms[i].ID) {
			b.Errorf("message %d counts as published, and was never confirmed", i)
		}
	}
}

// exact also fails the test if a confirmed message has an error, or an error names another message.
// It ignores a sink's own timeout, which may pass if the machine stalls.
func (b *sinkBench) exact(p *publishing) {
	b.Helper()
	b.sound(p)
	for i, err := range b.result(p) {
		switch id := p.ms[i].ID; {
		case errors.Is(err, context.DeadlineExceeded):
		case err != nil && b.responses.confirms(id):
			b.Errorf("message %d was confirmed, and has the error: %v", i, err)
		case err != nil && b.Named && !strings.Contains(err.Error(), id):
			b.Errorf("message %d, %s, has the error of another: %v", i, id, err)
		}
	}
}

// arrive waits until n messages wait for withheld responses, or until no more arrive. A sink may
// wait for the first responses before it sends more.
func (b *sinkBench) arrive(n int) {
	b.Helper()
	const still = 25 // polls
	polls, before := 0, -1
	patience.Until(b, "messages wait for their responses", func() bool {
		waiting := b.responses.waiting()
		if polls++; waiting != before {
			polls, before = 0, waiting
		}
		return waiting >= n || waiting > 0 && polls >= still
	})
}

// untilDone releases all responses repeatedly until the calls return.
func (b *sinkBench) untilDone(ps ...*publishing) {
	b.Helper()
	for _, p := range ps {
		patience.Until(b, "Publish returns", func() bool {
			b.responses.release(b.random, all)
			return len(p.done) == 1
		})
	}
}

func all(string) bool { return true }

// of returns a function that selects the messages at some indexes by id.
func of(ms []pawl.Message, indexes ...int) func(string) bool {
	ids := map[string]bool{}
	for _, i := range indexes {
		ids[ms[i].ID] = true
	}
	return func(id string) bool { return ids[id] }
}

// In any order of responses, each message gets its own. Confirmed messages are published, and the
// others have their errors.
func responsesBelong(b *sinkBench) {
	b.exact(b.publish(b.Context(), b.messages(0, batch)))
	b.responses.keep(all)
	for range 8 {
		ms := b.messages(0, batch)
		refused := append(b.some(batch), b.random.IntN(batch))
		b.refuse(ms, refused...)
		p := b.publish(b.Context(), ms)
		b.arrive(batch)
		b.untilDone(p)
		b.exact(p)
		for _, i := range refused {
			if b.result(p)[i] == nil {
				b.Errorf("message %d was refused, and has no error", i)
			}
		}
	}
}

// A message without a response when the context ends is not published, even if others got one.
func silence(b *sinkBench) {
	patterns := [][]int{{0}, {batch - 1}, {0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 4, 5, 6, 7}, {1, 2, 3, 4, 5, 6, 7}}
	for range 20 { // a sink may choose at random between a response and the end of its context
		patterns = append(patterns, []int{1, 3, 5, 7}, []int{0, 2, 4, 6})
	}
	for _, silent := range patterns {
		ms := b.messages(0, batch)
		b.responses.keep(of(ms, silent...))
		ctx, cancel := context.WithCancel(b.Context())
		p := b.publish(ctx, ms)
		b.arrive(len(silent))
		cancel()
		b.sound(p)
		b.responses.release(b.random, all)
	}
	b.goesOn()
}

// The context ends at each arrival and each response in turn, while every other response is
// withheld.
func endsAtAnyPoint(b *sinkBench) {
	for at := 1; at <= 3*batch; at++ {
		ms := b.messages(0, batch)
		b.responses.keep(of(ms, 1, 3, 5, 7))
		if at%2 == 0 {
			b.responses.keep(nil)
		}
		ctx, cancel := context.WithCancel(b.Context())
		b.responses.tell(func(n int) {
			if n == at {
				cancel()
			}
		})
		p := b.publish(ctx, ms)
		ends(b, p.done, cancel)
		b.sound(p)
		b.responses.tell(nil)
		b.responses.release(b.random, all)
	}
	b.goesOn()
}

// Responses to a call whose context has ended arrive while the next call waits. They must not count
// for the next call.
func lateResponses(b *sinkBench) {
	b.responses.keep(all)
	for range 4 {
		first := b.messages(0, batch)
		ctx, cancel := context.WithCancel(b.Context())
		p := b.publish(ctx, first)
		b.arrive(batch)
		cancel()
		b.sound(p)

		second := b.messages(0, batch)
		ctx, cancel = context.WithCancel(b.Context())
		q := b.publish(ctx, second)
		b.arrive(2 * batch)
		b.responses.release(b.random, of(first, 0, 1, 2, 3, 4, 5, 6, 7))
		cancel()
		b.sound(q)
		b.responses.release(b.random, all)
	}
	b.goesOn()
}

// Concurrent calls get the responses to their own messages.
func callsDoNotMix(b *sinkBench) {
	const calls = 4
	b.responses.keep(all)
	for range 4 {
		var ps []*publishing
		for n := range calls {
			ms := b.messages(n*aggregates/calls, aggregates/calls)
			b.refuse(ms, b.some(len(ms))...)
			ps = append(ps, b.publish(b.Context(), ms))
		}
		b.arrive(aggregates)
		b.untilDone(ps...)
		for _, p := range ps {
			b.exact(p)
		}
	}
}

// The context of one call ends. The other calls get all their responses.
func oneEndsNoOther(b *sinkBench) {
	for range 4 {
		b.responses.keep(all)
		ended, other := b.messages(0, batch), b.messages(batch, batch)
		ctx, cancel := context.WithCancel(b.Context())
		p, q := b.publish(ctx, ended), b.publish(b.Context(), other)
		b.arrive(2 * batch)
		cancel()
		b.sound(p)
		b.untilDone(q)
		b.exact(q)
		b.responses.drop()
	}
	b.goesOn()
}

// The connection is cut after some responses. Messages without a response are not published, and
// the sink reconnects.
func cutInTheMiddle(b *sinkBench) {
	for _, kept := range [][]int{{0, 1, 2, 3, 4, 5, 6, 7}, {4, 5, 6, 7}, {0, 2, 4, 6}, {1, 3, 5, 7}, {7}} {
		ms := b.messages(0, batch)
		b.responses.keep(of(ms, kept...))
		ctx, cancel := context.WithCancel(b.Context())
		p := b.publish(ctx, ms)
		b.arrive(len(kept))
		b.outlet.Cut()
		b.responses.drop()
		ends(b, p.done, cancel)
		b.sound(p)
		b.responses.drop()
	}
	b.goesOn()
}

// The destination's response does not mention some messages.
func partialResponses(b *sinkBench) {
	for range 4 {
		ms := b.messages(0, batch)
		indexes := append(b.some(batch), b.random.IntN(batch))
		for _, i := range indexes {
			b.responses.omit(ms[i].ID)
		}
		ctx, cancel := context.WithCancel(b.Context())
		p := b.publish(ctx, ms)
		ends(b, p.done, cancel)
		b.sound(p)
		b.responses.drop()
	}
	b.goesOn()
}

// A batch is accepted up to the first message without a confirmation, and no further.
func batchIsAPrefix(b *sinkBench) {
	sink, takes := b.outlet.Sink.(pawl.BatchSink)
	if !takes {
		return
	}
	for _, at := range []int{0, 1, 4, batch - 1} {
		for _, how := range []string{"refused", "silent", "cut"} {
			b.calls++
			var ms []pawl.Message
			for i := range batch {
				ms = append(ms, b.message(b.id(i), 0))
			}
			ctx, cancel := context.WithCancel(b.Context())
			b.responses.keep(of(ms, at))
			if how == "refused" {
				b.responses.keep(nil)
				b.refuse(ms, at)
			}
			accepted := make(chan int, 1)
			go func() {
				n, err := sink.PublishBatch(ctx, ms)
				if n != len(ms) && err == nil {
					n = -1
				}
				accepted <- n
			}()
			if how != "refused" {
				b.arrive(1)
			}
			if how == "cut" {
				b.outlet.Cut()
				b.responses.drop()
			}
			if how == "silent" {
				cancel()
			}
			ends(b, accepted, cancel)
			n := <-accepted
			if n < 0 || n > batch {
				b.Fatalf("%s at %d: accepted %d of %d", how, at, n, batch)
			}
			for i := range n {
				if !b.responses.confirms(ms[i].ID) {
					b.Errorf("%s at %d: %d are accepted, and message %d was never confirmed", how, at, n, i)
				}
			}
			b.responses.drop()
		}
	}
	b.responses.keep(nil)
	b.goesOn()
}

// goesOn fails the test unless the sink publishes again after all responses are sent.
func (b *sinkBench) goesOn() {
	b.Helper()
	b.responses.keep(nil)
	b.responses.release(b.random, all)
	patience.Until(b, "the sink publishes again", func() bool {
		p := b.publish(b.Context(), b.messages(0, batch))
		b.sound(p)
		return !slices.ContainsFunc(b.result(p), func(err error) bool { return err != nil })
	})
}
