package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

// A brokenBed is a consumer whose deliveries all become dead letters until it is repaired.
type brokenBed struct {
	*bed
	member *member
	mended atomic.Bool
	mu     sync.Mutex
	paused []pawl.Event
	order  map[string][]int // numbers of the handled deliveries, by ordering key
}

const mostDead = 30

// floods are the ways in which all deliveries become dead letters.
var floods = map[string]func(b *brokenBed){
	"invalid": func(b *brokenBed) {
		b.config.Key = func(d pawl.Delivery) string {
			if b.mended.Load() {
				return d.Key
			}
			return ""
		}
	},
	"final": func(b *brokenBed) {
		b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
			if b.mended.Load() {
				return apply(ctx, tx, d)
			}
			return pawl.Final(errors.New("no such account"))
		}
	},
	"attempts": func(b *brokenBed) {
		b.form.MaxAttempts = 1
		b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
			if b.mended.Load() {
				return apply(ctx, tx, d)
			}
			return errors.New("a bug")
		}
	},
}

func newBrokenBed(t *testing.T, form func(*form), cause func(*brokenBed)) *brokenBed {
	b := &brokenBed{bed: setup(t), order: map[string][]int{}}
	b.member = b.bed.member()
	cause(b)
	handle := b.form.handle
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		err := handle(ctx, tx, d)
		if n := 0; err == nil {
			_, _ = fmt.Sscanf(d.Key, "order-%d", &n)
			b.mu.Lock()
			b.order[d.OrderingKey] = append(b.order[d.OrderingKey], n)
			b.mu.Unlock()
		}
		return err
	}
	form(&b.form)
	b.form.batchSize = 10 // otherwise the running batches hold all of them
	b.config.MaxDead, b.config.Concurrency, b.config.RetryConcurrency = mostDead, 2, 1
	b.config.Hooks = pawl.Join(b.counters.Hooks(), pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventReceivePaused {
			b.mu.Lock()
			b.paused = append(b.paused, e)
			b.mu.Unlock()
		}
	}})
	return b
}

func (b *brokenBed) told() []pawl.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.paused)
}

// probes returns how often the source was asked for one delivery, and sizes the earlier requests.
func (b *brokenBed) probes() (probes int) {
	for _, most := range b.member.noted().most {
		if most == 1 {
			probes++
		}
	}
	return probes
}

// If all deliveries become dead letters, receiving stops at MaxDead and tries one at a time. When
// one takes effect, the rest is received. None is lost, and each ordering key keeps its order.
func TestFlood_NearlyAllBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	const messages = 300
	for form, causes := range map[string][]string{"inline": {"invalid", "final", "attempts"}, "many": {"invalid"}, "source": {"final"}, "stored": {"final"}, "leased": {"invalid", "attempts"}} {
		for _, cause := range causes {
			t.Run(form+"/"+cause, func(t *testing.T) {
				t.Parallel()
				b := newBrokenBed(t, allForms[form], floods[cause])
				for n := range messages {
					d := order(n)
					d.OrderingKey = []string{"", "a", "b"}[n%3]
					b.source.Send(d)
				}
				b.form.LanePolicy = "skip"
				b.start()
				b.until("it is paused, and tries one", func() bool { return len(b.told()) > 0 && b.probes() > 1 })
				e := b.told()[0]
				if e.Op != "consumer.receive" || e.Scope != "orders" || e.Count != mostDead || !strings.Contains(e.Err.Error(), "MaxDead") {
					t.Errorf("reported %+v", e)
				}
				// Received when it stopped: in handlers, or parked behind others of their key.
				inHand := 150
				if form == "stored" || form == "leased" {
					inHand = messages // stored before their first try
				}
				if dead, most := b.count("select count(*) from pawl_v1.dead_letters"), mostDead+inHand+b.probes(); dead < mostDead || dead > most {
					t.Errorf("%d dead letters, want %d to %d", dead, mostDead, most)
				}
				b.mended.Store(true)
				b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
				b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job where status <> 'dead_letter'") == 0 })
				dead := b.count("select count(*) from pawl_v1.dead_letters")
				b.wantEffects(messages - dead)
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, key := range []string{"a", "b"} {
					if len(b.order[key]) == 0 || !slices.IsSorted(b.order[key]) {
						t.Errorf("of %s took effect in this order: %v", key, b.order[key])
					}
				}
			})
		}
	}
}

// If one in six takes effect, receiving does not stop, also if the effects are duplicates.
func TestFlood_OneEffectInSixKeepsReceiving(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint("known ", known), func(t *testing.T) {
			t.Parallel()
			b := newBrokenBed(t, allForms["inline"], func(b *brokenBed) {
				b.config.Key = func(d pawl.Delivery) string {
					if strings.HasPrefix(d.Key, "bad") {
						return ""
					}
					return d.Key
				}
			})
			b.config.Concurrency = 1 // two may handle a run of bad ones while one effect commits
			for n := range 600 {
				d := order(n)
				switch {
				case n%6 > 0:
					d.Key = fmt.Sprint("bad ", n)
				case known:
					d = order(0)
				}
				b.source.Send(d)
			}
			b.consume()
			if n := b.count("select count(*) from pawl_v1.dead_letters"); n != 500 || len(b.told()) > 0 {
				t.Errorf("%d dead letters, paused %d times", n, len(b.told()))
			}
		})
	}
}

// A duplicate of a dead letter is no effect: it neither ends nor delays the end of the pause.
func TestFlood_OnlyAnEffectEndsIt(t *testing.T) {
	t.Parallel()
	b := newBrokenBed(t, allForms["inline"], floods["invalid"])
	for n := range 300 {
		d := order(n)
		d.MessageID = fmt.Sprint("m", n)
		b.source.Send(d, d, d)
	}
	b.start()
	b.until("it is paused, and tries some", func() bool { return len(b.told()) > 0 && b.probes() > 2 })
	sizes := b.member.noted().most
	first := slices.Index(sizes, 1)
	if slices.ContainsFunc(sizes[first:], func(most int) bool { return most != 1 }) {
		t.Errorf("the source was asked for %v after it was paused", sizes[first:])
	}
}

// The default is 1,000, or no bound if senders wait. A negative bound is no bound.
func TestFlood_Bounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		most   int
		waits  bool
		paused bool
	}{
		"negative":                     {most: -1},
		"of senders that wait":         {waits: true},
		"by default":                   {paused: true},
		"of senders that wait, if set": {most: mostDead, waits: true, paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBrokenBed(t, allForms["many"], floods["invalid"])
			b.config.MaxDead, b.config.Concurrency = c.most, 6
			b.member.info = pawl.SourceInfo{AckAtOnce: c.waits, ReceiveBatch: 100}
			const messages = 1100
			for n := range messages {
				b.source.Send(order(n))
			}
			b.start()
			if c.paused {
				b.until("it is paused", func() bool { return len(b.told()) > 0 })
				if e := b.told()[0]; e.Count != 1000 && e.Count != c.most {
					t.Errorf("reported %+v", e)
				}
				return
			}
			b.until("all are dead letters", func() bool { return b.source.Open() == 0 })
			if len(b.told()) > 0 || b.count("select count(*) from pawl_v1.dead_letters") != messages {
				t.Errorf("reported %v", b.told())
			}
		})
	}
}

// A message that a Trigger cannot decode becomes a dead letter and counts too.
func TestFlood_Trigger(t *testing.T) {
	t.Parallel()
	b := newBrokenBed(t, func(*form) {}, func(*brokenBed) {})
	b.config.Handler = consumer.Trigger(func(context.Context, consumer.Message[struct{ ID int }]) error { return nil })
	for n := range 300 {
		b.source.Send(order(n)) // the bodies are not JSON
	}
	b.start()
	b.until("it is paused", func() bool { return len(b.told()) > 0 })
	b.source.Send(pawl.Delivery{Key: "good", Payload: []byte(`{"ID": 1}`)})
	if n := b.count("select count(*) from pawl_v1.dead_letters"); n < mostDead || n > mostDead+100+b.probes() {
		t.Errorf("%d dead letters", n)
	}
}
