package flow_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/flow"
)

// Deliveries that share a semantic key are one effect, whatever their keys and payloads, in every form of handler; all are acknowledged.
func TestFlow_SemanticKey(t *testing.T) {
	t.Parallel()
	forms := map[string]func(*flow.Config){
		"inline": func(*flow.Config) {},
		"land":   func(c *flow.Config) { c.Mode = flow.Land },
		"batch": func(c *flow.Config) {
			c.Handler, c.BatchHandler = nil, func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
				for _, d := range ds {
					if err := apply(ctx, tx, d); err != nil {
						return err
					}
				}
				return nil
			}
		},
		"long": func(c *flow.Config) {
			c.Handler, c.LongHandler = nil, func(ctx context.Context, a *flow.Attempt) error {
				return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
			}
		},
	}
	for form, set := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			set(&b.config)
			const names, events = 20, 3
			for n := range names {
				for e := range events {
					d := order(n*events + e)
					d.SemanticKey = fmt.Sprintf("invoice.paid/%d", n)
					if n%2 == 1 {
						d.SemanticKey = strings.Repeat("long", 60) + d.SemanticKey // that no inbox key has room for
					}
					b.source.Send(d, d)
				}
			}
			b.source.Send(order(1000)) // without one
			b.consume()
			b.wantEffects(names + 1)
			if n := b.count("select count(*) from pawl.inbox where message_id not like 'pawl/%'"); n != names*events+1 {
				t.Errorf("%d keys are remembered, want %d", n, names*events+1)
			}
			if repeated := b.counters.Count(pawl.EventDuplicateSkipped); repeated < names*(events-1) {
				t.Errorf("only %d duplicates were told of", repeated)
			}
		})
	}
}

// A semantic key that no inbox can hold makes a dead letter, not an endless redelivery.
func TestFlow_SemanticKeyThatCannotBe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := order(1)
	d.SemanticKey = "with a\x00NUL"
	b.source.Send(d)
	b.consume()
	b.wantEffects(0)
	if b.counters.Count(pawl.EventUnfit) != 1 {
		t.Error("it is not unfit")
	}
}

// With SourceRetries a failure leaves nothing behind, and the source hands it out again; what is final lands all the same.
func TestFlow_SourceRetries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var tries atomic.Int32
	b.config.OnError = flow.SourceRetries
	b.config.SoloAfter = 100
	b.config.Handler = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
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
		t.Errorf("%d tries, %d told", tries.Load(), b.counters.Count(pawl.EventRetryable))
	}
	b.config.Mode = flow.Land
	if _, err := flow.New(b.pool, b.config); err == nil {
		t.Error("SourceRetries was taken with the Mode Land")
	}
}
