package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

// Deliveries that share a semantic key are one effect, in every form. All are acknowledged.
func TestConsumer_SemanticKey(t *testing.T) {
	t.Parallel()
	forms := map[string]func(*form){
		"inline": func(*form) {},
		"store":  func(c *form) { c.Mode = consumer.StoreFirst },
		"batch": func(c *form) {
			c.many = func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
				for _, d := range ds {
					if err := apply(ctx, tx, d); err != nil {
						return err
					}
				}
				return nil
			}
		},
		"long": func(c *form) {
			c.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
				return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
			}
		},
	}
	for form, set := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			set(&b.form)
			const names, events = 20, 3
			for n := range names {
				for e := range events {
					d := order(n*events + e)
					d.SemanticKey = fmt.Sprintf("invoice.paid/%d", n)
					if n%2 == 1 {
						// too long for an inbox key
						d.SemanticKey = strings.Repeat("long", 60) + d.SemanticKey
					}
					b.source.Send(d, d)
				}
			}
			b.source.Send(order(1000)) // without a semantic key
			b.consume()
			b.wantEffects(names + 1)
			kept := b.count("select count(*) from pawl.inbox where key not like 'pawl/%'")
			// A delivery that was stored before it could be handled, as on a busy machine that
			// loses a transaction, leaves a row nevertheless.
			stored := int(b.counters.Count(pawl.EventStored) + b.counters.Count(pawl.EventSuspect) + b.counters.Count(pawl.EventRetryable))
			if kept < names+1 || kept > min(names+1+stored, names*events+1) {
				t.Errorf("%d keys are remembered, want %d: a duplicate under another key leaves no row; %d were stored", kept, names+1, stored)
			}
			if repeated := b.counters.Count(pawl.EventDuplicateSkipped); repeated < names*(events-1) {
				t.Errorf("only %d duplicates were reported", repeated)
			}
		})
	}
}

// A delivery under a new key whose semantic key took effect leaves no row, in every form of
// handler, before a gate or in a lane.
func TestConsumer_ARepeatUnderANewKeyKeepsNothing(t *testing.T) {
	t.Parallel()
	forms := map[string]func(*form){
		"inline": func(*form) {},
		"store":  func(c *form) { c.Mode = consumer.StoreFirst },
		"gate": func(c *form) {
			first := int64(1)
			c.SequenceGate = &consumer.SequenceGate{Mode: consumer.GateStrict, First: &first, Of: func(pawl.Delivery) (string, int64, error) { return "r", 1, nil }}
		},
		"long": func(c *form) {
			c.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
				return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
			}
		},
	}
	for form, set := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.config.Keep.Mode = consumer.KeepAll
			set(&b.form)
			repeat := func(n int) pawl.Delivery {
				d := order(n)
				d.SemanticKey = "invoice.paid/1"
				return d
			}
			b.source.Send(repeat(0))
			b.consume()
			for n := range 20 {
				b.source.Send(repeat(n + 1))
			}
			b.consume()
			b.wantEffects(1)
			// rows for the first delivery and for its semantic key
			for table, want := range map[string]int{"inbox": 2, "delivery": 1, "job": 0} {
				if n := b.count("select count(*) from pawl." + table); n != want {
					t.Errorf("%d rows in pawl.%s, want %d", n, table, want)
				}
			}
			if n := b.counters.Count(pawl.EventDuplicateSkipped); n != 20 {
				t.Errorf("%d duplicates were reported", n)
			}
		})
	}
}

// A semantic key that the inbox cannot store makes a dead letter, not an endless redelivery.
func TestConsumer_AnInvalidSemanticKeyIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := order(1)
	d.SemanticKey = "with a\x00NUL"
	b.source.Send(d)
	b.consume()
	b.wantEffects(0)
	if b.counters.Count(pawl.EventInvalid) != 1 {
		t.Error("it is not invalid")
	}
}

// With RetryFromSource the source redelivers after a failure, and only final failures are stored.
func TestConsumer_RetryFromSource(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var tries atomic.Int32
	b.form.Mode = consumer.RetryFromSource
	b.form.SoloAfter = 100
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		if err := apply(ctx, tx, d); err != nil {
			return err
		}
		if d.Key == "order-2" {
			return pawl.Final(fmt.Errorf("never"))
		}
		if tries.Add(1) < 3 {
			return fmt.Errorf("not yet")
		}
		return nil
	}
	b.source.Send(order(1), order(2))
	b.consume()
	b.wantEffects(1)
	if b.count("select count(*) from pawl.job") != 1 || b.counters.Count(pawl.EventRetryable) != 2 || tries.Load() != 3 {
		t.Errorf("%d tries, %d reported", tries.Load(), b.counters.Count(pawl.EventRetryable))
	}
}
