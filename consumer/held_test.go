package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

// A delivery that the source has taken back is dropped in every form: not handled, acknowledged or
// released. It takes effect when it comes again. StillHeld is called once per arrival.
func TestConsumer_DropsWhatItsSourceHasTakenBack(t *testing.T) {
	t.Parallel()
	for name, choose := range map[string]func(*bed){
		"HandleTx":         func(*bed) {},
		"HandleManyTx":     func(b *bed) { b.batches(nothing) },
		"HandleMany alone": func(b *bed) { b.batches(nothing); b.form.SoloAfter = 1 },
		"StoreFirst":       func(b *bed) { b.form.Mode = consumer.StoreFirst },
		"Handle": func(b *bed) {
			b.form.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
				return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
			}
		},
		"Trigger": func(b *bed) {
			b.form.handle, b.form.trigger = nil, func(ctx context.Context, d pawl.Delivery) error {
				_, err := b.pool.Exec(ctx, "insert into effect values ($1, $2)", d.Key, string(d.Payload))
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			choose(b)
			b.form.Lease = time.Minute
			m := b.member()
			m.revoked = func(d pawl.Delivery) bool { return d.Receives == 1 && strings.HasPrefix(d.Key, "lost") }
			const kept, lost = 20, 7
			for n := range kept {
				b.source.Send(order(n))
			}
			for n := range lost {
				b.source.Send(pawl.Delivery{Key: fmt.Sprintf("lost-%d", n), Payload: []byte("x")})
			}
			b.start()
			b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
			b.until("all took effect", func() bool { return b.count("select count(*) from effect") >= kept+lost })
			b.wantEffects(kept + lost)
			if n := b.counters.Count(pawl.EventHandleLost); n != lost {
				t.Errorf("%d were reported lost, want %d", n, lost)
			}
			n := m.noted()
			if len(n.touched) > 0 || len(n.left) > 0 {
				t.Errorf("touched what was lost: %v, left what was held: %v", n.touched, n.left)
			}
			for arrival, times := range n.asked {
				if times != 1 {
					t.Errorf("asked %d times for %s", times, arrival)
				}
			}
		})
	}
}

// One batch has a key twice: losing one of the two deliveries does not drop the other.
func TestConsumer_AKeyTwiceInABatchIsAskedForTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.batches(nothing)
	b.config.Concurrency = 1
	m := b.member()
	m.revoked = func(d pawl.Delivery) bool { return d.Receives == 1 && d.Attributes["of"] == "the lost" }
	for n := range 20 {
		first, second := order(n), order(n)
		if n%2 == 0 {
			first.Attributes = map[string]string{"of": "the lost"}
		} else {
			second.Attributes = map[string]string{"of": "the lost"}
		}
		b.source.Send(first, second)
	}
	b.start()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	b.wantEffects(20)
	if n := m.noted(); len(n.touched) > 0 || len(n.left) > 0 {
		t.Errorf("touched what was lost: %v, left what was held: %v", n.touched, n.left)
	}
}

// StillHeld is called as late as possible. Deliveries that wait behind others are not started, so a
// broker can move them without waiting.
func TestConsumer_AsksRightBeforeItBegins(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	m := b.member()
	entered, goOn := make(chan struct{}, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if d.Key == "l-0" {
			entered <- struct{}{}
			<-goOn
		}
		return note(ctx, tx, d)
	}
	b.config.Concurrency = 1
	for seq := range 5 {
		b.source.Send(ordered("l", seq))
	}
	for lane := range 3 {
		b.source.Send(ordered(fmt.Sprint("other ", lane), 0))
	}
	b.start()
	<-entered
	b.until("all are received", func() bool { return b.source.Waiting() == 0 })
	if n := m.noted(); len(n.asked) != 1 {
		t.Errorf("asked for %v while one is handled", n.asked)
	}
	release()
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	if n := m.noted(); len(n.asked) != 8 {
		t.Errorf("asked for %d, want 8", len(n.asked))
	}
}

// If the first delivery of an ordering key is lost, none behind it takes effect before it comes
// again. Those that are lost too are dropped, and the others are released.
func TestConsumer_WhatIsLostIsNotOvertaken(t *testing.T) {
	t.Parallel()
	for name, revoked := range map[string]func(pawl.Delivery) bool{
		"all of the key":    func(d pawl.Delivery) bool { return d.Receives == 1 },
		"the first":         func(d pawl.Delivery) bool { return d.Receives == 1 && string(d.Payload) == "0" },
		"one in the middle": func(d pawl.Delivery) bool { return d.Receives == 1 && string(d.Payload) == "2" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, ran)
			b.form.handle = note
			// an abandoned delivery does not return by itself
			b.source.Invisibility = 24 * time.Hour
			m := b.member()
			m.revoked = revoked
			for seq := range 6 {
				for lane := range 3 {
					b.source.Send(ordered(fmt.Sprint("lane ", lane), seq))
				}
			}
			b.start()
			b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
			b.wantOrder(3, 6)
			n := m.noted()
			if len(n.touched) > 0 || len(n.left) > 0 {
				t.Errorf("touched what was lost: %v, left what was held: %v", n.touched, n.left)
			}
			if len(m.lost) == 0 || b.counters.Count(pawl.EventHandleLost) != int64(len(m.lost)) {
				t.Errorf("%d were lost, %d told", len(m.lost), b.counters.Count(pawl.EventHandleLost))
			}
		})
	}
}
