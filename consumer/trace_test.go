package consumer_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
)

const (
	sent  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	state = "vendor=1"
)

// Every form of handler runs in the sender's trace, at every try, and so do the jobs it enqueues. A
// message with no trace, or an invalid one, runs without a trace.
func TestTrace_OfTheSender(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(c *form, seen func(context.Context, pawl.Delivery) error){
		"handler": func(c *form, seen func(context.Context, pawl.Delivery) error) {
			c.handle = func(ctx context.Context, _ pgx.Tx, d pawl.Delivery) error { return seen(ctx, d) }
		},
		"long": func(c *form, seen func(context.Context, pawl.Delivery) error) {
			c.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error { return seen(ctx, a.Delivery) }
		},
		"trigger": func(c *form, seen func(context.Context, pawl.Delivery) error) {
			c.trigger = seen
		},
		"a batch of one": func(c *form, seen func(context.Context, pawl.Delivery) error) {
			c.batchSize = 1
			c.many = func(ctx context.Context, _ pgx.Tx, ds []pawl.Delivery) error { return seen(ctx, ds[0]) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var mu sync.Mutex
			tries := map[string][]pawl.Trace{}
			set(&b.form, func(ctx context.Context, d pawl.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				tries[d.Key] = append(tries[d.Key], pawl.TraceOf(ctx))
				if len(tries[d.Key]) == 1 {
					return errors.New("not yet")
				}
				_, err := job.Enqueue(ctx, b.pool, job.Request{Queue: "q", Kind: "k", Key: d.Key})
				return err
			})
			for key, attributes := range map[string]map[string]string{
				"traced": {"traceparent": sent, "tracestate": state}, "untraced": nil, "broken": {"traceparent": "00-1-2-03"},
			} {
				b.source.Send(pawl.Delivery{Key: key, Payload: []byte("b"), Attributes: attributes})
			}
			stop := b.start()
			b.until("three jobs", func() bool { return b.count("select count(*) from pawl.job as j where j.queue = 'q'") == 3 })
			stop()
			for key, all := range tries {
				want := pawl.Trace{}
				if key == "traced" {
					want = pawl.Trace{Parent: sent, State: state}
				}
				for _, got := range all {
					if got != want {
						t.Errorf("%s: tried in %v, want %v", key, all, want)
					}
				}
			}
			if n := b.count("select count(*) from pawl.job as j where j.queue = 'q' and j.headers ->> 'traceparent' = '" + sent + "'"); n != 1 {
				t.Errorf("%d jobs were enqueued in the trace, want 1", n)
			}
		})
	}
}
