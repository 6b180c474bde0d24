package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/outbox"
)

// hanging starts a relay whose sink never returns for one event and ignores its context.
func hanging(b *bed, sink func(stuck func()) pawl.Sink) (tries *atomic.Int32) {
	b.Helper()
	tries, end := &atomic.Int32{}, make(chan struct{})
	for n := range 5 {
		b.append(event(fmt.Sprint(n), []string{"a", "b", "hangs", "c", "d"}[n]))
	}
	b.relay(func(c *outbox.Config) {
		c.Timeout = time.Second
		c.Sink = sink(func() {
			tries.Add(1)
			<-end
		})
	})
	b.Cleanup(func() { close(end) }) // before the relay stops
	return tries
}

// A function that hangs delays its neighbours and has no other effect on them: they are published
// once and uncharged, and so are later events.
func TestFunc_HangsAndItsNeighboursAreDone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tries := hanging(b, func(stuck func()) pawl.Sink {
		return outbox.Func(func(ctx context.Context, m pawl.Message) error {
			if string(m.Payload) == "hangs" {
				stuck()
			}
			return b.Publish(ctx, []pawl.Message{m})[0]
		})
	})
	b.wait("the neighbours are done", func() bool { return b.count("select count(*) from pawl_v1.outbox_pending") == 1 })
	b.append(event("0", "later"))
	b.wait("what came later is done, and the event that hangs is tried again", func() bool {
		return b.count("select count(*) from pawl_v1.outbox_pending") == 1 && len(b.accepted()) >= 5 && tries.Load() > 1
	})
	if got := b.accepted(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "b", "c", "d", "later"}) {
		t.Errorf("published %v", got)
	}
}

// A sink that hangs on one event of a call is abandoned. The results of the other events are
// unknown, so they are published again, each in its own call and uncharged.
func TestRelay_SinkThatHangsIsLeftBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tries := hanging(b, func(stuck func()) pawl.Sink { return stubborn{b, stuck} })
	b.wait("the neighbours are done", func() bool {
		return b.count("select count(*) from pawl_v1.outbox_pending") == 1 && tries.Load() > 1
	})
	if got := b.accepted(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "b", "c", "d"}) {
		t.Errorf("published %v", got)
	}
	if charged := b.counters.Count(pawl.EventRetryable); charged > int64(tries.Load()) {
		t.Errorf("%d attempts were charged, and the event that hangs was tried %d times", charged, tries.Load())
	}
}

// A stubborn sink hangs on calls that contain the event "hangs" and publishes nothing of them.
type stubborn struct {
	*bed
	stuck func()
}

func (s stubborn) Publish(ctx context.Context, ms []pawl.Message) []error {
	if slices.ContainsFunc(ms, func(m pawl.Message) bool { return string(m.Payload) == "hangs" }) {
		s.stuck()
	}
	return s.bed.Publish(ctx, ms)
}

// A sink that panics fails the messages of its call, not the process. That holds for excused
// events, too.
func TestRelay_SinkThatPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var calls atomic.Int32
	b.append(event("1", "a"), event("2", "b"))
	b.refusing(func(pawl.Message) error {
		switch calls.Add(1) {
		case 1, 2:
			// both are excused and are published singly
			return pawl.SinkDown(context.DeadlineExceeded)
		case 3, 4:
			panic("the sink")
		}
		return nil
	})
	b.relay()
	b.untilDone()
	if n := calls.Load(); n < 6 {
		t.Errorf("%d messages were seen: nothing panicked", n)
	}
}
