package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
)

// A partition is a sink that takes ordered batches and appends them, like a partition of a log. cut
// returns how many messages of a batch it accepts, how many it reports as accepted, and its error.
type partition struct {
	*bed
	cut func(ms []pawl.Message) (accept, say int, err error)

	batches int
	most    int // messages in one call
}

func (p *partition) PublishBatch(_ context.Context, ms []pawl.Message) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches, p.most = p.batches+1, max(p.most, len(ms))
	accept, say, err := len(ms), len(ms), error(nil)
	if p.cut != nil {
		accept, say, err = p.cut(ms)
	}
	p.got = append(p.got, ms[:accept]...)
	return say, err
}

// calls returns the number of batches and the length of the longest.
func (p *partition) calls() (batches, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batches, p.most
}

func (b *bed) partition() *partition { return &partition{bed: b} }

func (p *partition) relay(change ...func(*outbox.Config)) (stop func()) {
	_, stop = p.bed.relay(append([]func(*outbox.Config){func(cfg *outbox.Config) { cfg.Sink = p }}, change...)...)
	return stop
}

// numbered appends n events to an aggregate and returns their payloads.
func (b *bed) numbered(of string, n int) (payloads []string) {
	b.Helper()
	events := make([]outbox.Event, n)
	for i := range events {
		payloads = append(payloads, fmt.Sprintf("%s/%03d", of, i))
		events[i] = event(of, payloads[i])
	}
	b.append(events...)
	return payloads
}

// wantRewinds requires that each payload came, and came first only after all before it. After a
// repetition the sequence continues in order from there.
func (b *bed) wantRewinds(want []string) (repeated int) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	reached, last, ids := 0, -1, map[string]string{}
	for _, m := range b.got {
		at := slices.Index(want, string(m.Payload))
		if at < 0 || at > reached || last >= 0 && at > last+1 {
			b.Fatalf("%s came after place %d, %d places were reached", m.Payload, last, reached)
		}
		if id := ids[string(m.Payload)]; id != "" && id != m.ID {
			b.Errorf("%s came as %s and as %s", m.Payload, id, m.ID)
		}
		if ids[string(m.Payload)] = m.ID; at == reached {
			reached++
		} else {
			repeated++
		}
		last = at
	}
	if reached != len(want) {
		b.Errorf("%d of %d came", reached, len(want))
	}
	return repeated
}

// The events of one aggregate are published once each, in order, in far fewer calls than events.
func TestBatch_OneAggregateInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.partition()
	want := b.numbered("1", 300)
	p.relay(func(cfg *outbox.Config) { cfg.MaxBatch = 100 })
	b.untilDone()
	b.wantInOrder(want...)
	if batches, most := p.calls(); batches > 10 || most > 100 || most < 50 {
		t.Errorf("%d calls for 300 events, at most %d in one", batches, most)
	}
	b.wait("each event counted once", func() bool { return b.counters.Count(pawl.EventSucceeded) == 300 })
	b.wantCount("select count(*) from pawl.job", 0)
}

// If a sink accepts a prefix and fails, the rest is published again, in order and without gaps. An
// event is charged only if it was refused as the first of its batch.
func TestBatch_APrefixIsAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.partition()
	random := rand.New(rand.NewPCG(1, 2))
	p.cut = func(ms []pawl.Message) (int, int, error) {
		n := 1 + random.IntN(len(ms))
		return n, n, errors.New("no more for now")
	}
	want := b.numbered("1", 200)
	p.relay()
	b.untilDone()
	b.wantInOrder(want...)
}

// An event that the sink refuses for good stops its aggregate there.
func TestBatch_ARefusedEventStopsItsAggregate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.partition()
	bad := func(m pawl.Message) error {
		if string(m.Payload) == "1/005" {
			return pawl.Final(errors.New("never"))
		}
		return nil
	}
	p.refuse = bad
	p.cut = func(ms []pawl.Message) (int, int, error) {
		for i, m := range ms {
			if err := bad(m); err != nil {
				return i, i, err
			}
		}
		return len(ms), len(ms), nil
	}
	want := b.numbered("1", 10)
	p.relay()
	b.wait("a dead letter", func() bool { return b.count("select count(*) from pawl.job where status = 'dead_letter'") == 1 })
	b.wantInOrder(want[:5]...)
	b.wantCount("select count(*) from pawl.job where status = 'waiting' and attempts = 0", 4)
}

// If a sink accepts more than it reports, those events are published again, in order.
func TestBatch_ASinkThatAcceptsMoreThanItSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.partition()
	random := rand.New(rand.NewPCG(3, 4))
	p.cut = func(ms []pawl.Message) (int, int, error) {
		accept := 1 + random.IntN(len(ms))
		return accept, 1 + random.IntN(accept), errors.New("the connection broke")
	}
	want := b.numbered("1", 200)
	p.relay()
	b.untilDone()
	if b.wantRewinds(want) == 0 {
		t.Error("nothing came again: the test shows nothing")
	}
}

// An impossible answer of the sink finishes no event.
func TestBatch_AnImpossibleAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	for _, say := range []int{-1, 1000} {
		t.Run(strconv.Itoa(say), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.partition()
			lied := false
			p.cut = func(ms []pawl.Message) (int, int, error) {
				if !lied {
					lied = true
					return 0, say, nil
				}
				return len(ms), len(ms), nil
			}
			want := b.numbered("1", 20)
			p.relay()
			b.untilDone()
			b.wantInOrder(want...)
		})
	}
}

// Cancel and Reschedule report an event in a running batch as processing: it may be published.
func TestBatch_AnEventInItIsProcessing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.partition()
	begun, on := make(chan int, 10), make(chan struct{})
	p.cut = func(ms []pawl.Message) (int, int, error) {
		begun <- len(ms)
		<-on
		return len(ms), len(ms), nil
	}
	want := b.numbered("a", 3)
	stop := p.relay()
	defer stop()
	if n := <-begun; n != 3 {
		close(on)
		t.Fatalf("a batch of %d", n)
	}
	var third int64
	err := b.pool.QueryRow(t.Context(), "select max(j.id) from pawl.job as j").Scan(&third)
	moved, err2 := job.Reschedule(t.Context(), b.pool, third, time.Hour)
	got, err3 := job.CancelByID(t.Context(), b.pool, third)
	close(on)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	if moved.Done || moved.Was != "processing" || moved.Hint == "" {
		t.Errorf("moved: %+v", moved)
	}
	if !got.Done || got.Was != "processing" {
		t.Errorf("cancelled: %+v", got)
	}
	b.wait("only the third is left", func() bool { return b.count("select count(*) from pawl.job") == 1 })
	if b.count("select count(*) from pawl.job as j where j.id = $1 and j.status = 'cancelled'", third) != 1 {
		t.Error("the third is not cancelled")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.got) != len(want) {
		t.Errorf("%d of %d are published", len(p.got), len(want))
	}
}

// Two relays whose sinks cut batches at random publish each event once and each aggregate in order.
func TestBatch_TwoRelays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	random := rand.New(rand.NewPCG(5, 6))
	cut := func(ms []pawl.Message) (int, int, error) {
		n := random.IntN(len(ms) + 1)
		return n, n, pawl.SinkDown(errors.New("down for a moment"))
	}
	want := map[string][]string{}
	for a := range 5 {
		of := strconv.Itoa(a)
		want[of] = b.numbered(of, 100)
	}
	for range 2 {
		p := b.partition()
		p.cut = cut
		p.relay(func(cfg *outbox.Config) { cfg.MaxBatch = 30 })
	}
	b.untilDone()
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, payloads := range want {
		var got []string
		for _, m := range b.got {
			if m.AggregateID == of {
				got = append(got, string(m.Payload))
			}
		}
		if !slices.Equal(got, payloads) {
			t.Errorf("aggregate %s: %v", of, got)
		}
	}
}

// If the reply to the end of a batch is lost, no event is skipped.
func TestBatch_TheReplyToItsEndIsLost(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]wireproxy.Cut{"committed": wireproxy.BeforeReply, "rolled back": wireproxy.BeforeSend} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			proxy, through := wireproxy.Start(t, b.url)
			proxy.Aim(wireproxy.Executes("pawl_v1.lane_finish"))
			var once sync.Once
			proxy.OnCommit(func() (fate wireproxy.Cut) {
				fate = wireproxy.Pass
				once.Do(func() { fate = cut })
				return fate
			})
			want := b.numbered("1", 50)
			b.pool = poolOf(t, through+"&default_query_exec_mode=cache_describe")
			p := b.partition()
			p.relay()
			b.pool = poolOf(t, b.url)
			b.untilDone()
			b.wantInOrder(want...) // lane_finish was called again
			if proxy.Cuts() != 1 {
				t.Errorf("%d cuts", proxy.Cuts())
			}
		})
	}
}

// If a relay dies in a batch, only the head is charged. The events of that batch are then published
// singly, so that the one that killed the process is found.
func TestBatch_ACrashRepeatsItAndItsEventsGoAlone(t *testing.T) {
	t.Parallel()
	for point, before := range map[string]int{"outbox.publish.before": 0, "outbox.publish.after": 20, "job.finish.before": 20} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := setup(t, chaosTables)
			c := &consumer{bed: b, payloads: map[string]string{}}
			server := httptest.NewServer(c)
			t.Cleanup(server.Close)
			want := b.numbered("1", 20)
			if err := b.batchProcess(server.URL, point+"=kill").Wait(); err == nil {
				t.Fatal("the relay did not die")
			}
			c.mu.Lock()
			arrived := len(c.arrived)
			c.mu.Unlock()
			if arrived != before {
				t.Errorf("%d arrived before the crash, want %d", arrived, before)
			}
			late := b.numbered("1", 10) // not in the batch that died
			p := b.partition()
			p.relay()
			b.untilDone()
			b.wantInOrder(append(want, late...)...)
			if batches, most := p.calls(); batches == 0 || most != 10 {
				t.Errorf("%d batches of at most %d, want those that came later in one", batches, most)
			}
		})
	}
}

// oneByOne publishes the messages of a batch one by one and stops at the first failure.
type oneByOne struct {
	pawl.Sink
	publish func(context.Context, pawl.Message) error
}

func (s oneByOne) PublishBatch(ctx context.Context, ms []pawl.Message) (int, error) {
	for i, m := range ms {
		if err := s.publish(ctx, m); err != nil {
			return i, err
		}
	}
	return len(ms), nil
}

// batchProcess starts a relay process with a batch sink.
func (b *bed) batchProcess(sink, faults string) *exec.Cmd {
	text, err := json.Marshal(relayOrder{URL: b.url, Sink: sink, Faults: faults, Batches: true})
	b.must(err)
	return b.start(text)
}
