package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// refund announces one refund under a key of its own.
func refund(n int) pawl.Delivery {
	d := order(n)
	d.SemanticKey = "refund-17"
	return d
}

// refunding gives the consumer a handler that calls the provider in a step and then calls the rest.
func (b *bed) refunding(provider *pawltest.Provider, recovery step.Recovery, behind func(context.Context, *consumer.Attempt[[]byte]) error) {
	b.form.handle = nil
	b.form.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		if _, err := charge(ctx, b.pool, a, provider.URL, stepOf("refund", "refund 17", recovery)); err != nil {
			if !errors.Is(err, pawl.ErrOutcomeUnknown) {
				err = job.RetryAfter(time.Hour, err)
			}
			return err
		}
		if err := behind(ctx, a); err != nil {
			return err
		}
		return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
	}
}

func succeed(context.Context, *consumer.Attempt[[]byte]) error { return nil }

// wantCalls checks the provider's records and the database.
func (b *bed) wantCalls(provider *pawltest.Provider, requests, charges int) {
	b.Helper()
	if n, made := provider.Requests(), provider.Charges(); n != requests || len(made) != charges {
		b.Errorf("%d requests made %+v; want %d requests, and %d charges", n, made, requests, charges)
	}
	for what, query := range map[string]string{"jobs": "select count(*) from pawl.job", "inbox rows that nothing settled": "select count(*) from pawl.inbox where processed_at is null"} {
		if n := b.count(query); n != 0 {
			b.Errorf("%d %s are left", n, what)
		}
	}
}

// If a semantic key is announced under several keys in turn, the provider is called once.
func TestLong_ASemanticKeyCallsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	provider := pawltest.NewProvider(t, time.Hour, nil)
	b.refunding(provider, step.AtMostOnce(), succeed)
	b.config.Concurrency = 1
	for n := range 3 {
		b.source.Send(refund(n), refund(n))
		b.consume()
	}
	b.wantEffects(1)
	b.wantCalls(provider, 1, 1)
}

// The steps of a semantic key are shown with its deliveries and their jobs, and outlive the jobs.
func TestLong_TheStepsOfASemanticKeyAreShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	provider := pawltest.NewProvider(t, time.Hour, nil)
	b.refunding(provider, step.AtMostOnce(), func(context.Context, *consumer.Attempt[[]byte]) error { return pawl.Final(errors.New("never")) })
	b.source.Send(refund(1))
	b.consume()
	if n := b.count("select count(*) from pawl_v1.explain('order-1') as e where e.kind = 'step' and e.event = 'succeeded'"); n != 1 {
		t.Errorf("the delivery shows %d succeeded steps", n)
	}
	if n := b.count("select count(*) from pawl.job as j cross join lateral pawl_v1._steps_of_job(j) as s where s.status = 'succeeded'"); n != 1 {
		t.Errorf("the job shows %d succeeded steps", n)
	}
	b.count("select count(*) from pawl_v1.job_discard((select j.id from pawl.job as j), 'ann', 'never')")
	if n := b.count("select count(*) from pawl_v1.explain('pawl/semantic/refund-17') as e where e.kind = 'step' and e.event = 'succeeded'"); n != 1 {
		t.Errorf("without its job the delivery shows %d succeeded steps", n)
	}
}

// A stored delivery whose semantic key took effect meanwhile does not reach its handler.
func TestLong_AStoredRepeatCallsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	provider := pawltest.NewProvider(t, time.Hour, nil)
	b.refunding(provider, step.AtMostOnce(), succeed)
	var called atomic.Int32
	work := b.form.work
	b.form.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		called.Add(1)
		return work(ctx, a)
	}
	for n := range 10 { // on most runs all are stored before the first is done
		b.source.Send(refund(n))
	}
	b.consume()
	b.wantEffects(1)
	b.wantCalls(provider, 1, 1)
	if n := called.Load(); n != 1 {
		t.Errorf("the handler was called %d times", n)
	}
}

// While one delivery of a semantic key is being worked on, others wait and call nothing.
func TestLong_ASemanticKeyIsWorkedOnOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	provider := pawltest.NewProvider(t, time.Hour, nil)
	var working atomic.Int32
	b.refunding(provider, step.AtMostOnce(), func(context.Context, *consumer.Attempt[[]byte]) error {
		if n := working.Add(1); n != 1 {
			return fmt.Errorf("%d are at work", n)
		}
		defer working.Add(-1)
		b.until("the other one waits", func() bool { return b.counters.Count(pawl.EventSnoozed) > 0 })
		return nil
	})
	stop, other := b.start(), b.start() // each has a worker of its own, like two processes
	b.source.Send(refund(1), refund(2))
	b.until("all is done", func() bool { return b.source.Open() == 0 && b.count("select count(*) from pawl.job") == 0 })
	stop()
	other()
	b.wantEffects(1)
	b.wantCalls(provider, 1, 1)
}

// If a delivery fails after its call, or its process dies there, its semantic key is free for the
// next delivery. The next one replays the call, or repeats it under the same provider key. The
// first is a duplicate when it is retried.
func TestLong_ASemanticKeyOwnsTheCall(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]func(int, *http.Request) pawltest.Lie{
		"answered": nil,
		"cut": func(n int, _ *http.Request) pawltest.Lie {
			if n == 0 {
				return pawltest.CutAfter
			}
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			provider := pawltest.NewProvider(t, time.Hour, lie)
			b.refunding(provider, step.Keyed(time.Hour), func(_ context.Context, a *consumer.Attempt[[]byte]) error {
				if a.Key == "order-1" {
					return job.RetryAfter(time.Hour, errors.New("not now"))
				}
				return nil
			})
			stop := b.start()
			b.source.Send(refund(1))
			b.until("the first waits", func() bool {
				return b.count("select count(*) from pawl.job where status = 'pending' and available_at > clock_timestamp() + interval '10 minutes'") == 1
			})
			b.source.Send(refund(2))
			b.until("the second took effect", func() bool { return b.count("select count(*) from effect where key = 'order-2'") == 1 })
			b.retryPending()
			b.until("the first is a duplicate", func() bool { return b.count("select count(*) from pawl.job") == 0 })
			stop()
			b.wantEffects(1)
			requests := 1
			if lie != nil {
				requests = 2
			}
			b.wantCalls(provider, requests, 1)
		})
	}
}

// retryPending makes all jobs due, as an operator would.
func (b *bed) retryPending() {
	b.Helper()
	if _, err := b.asks.Exec(b.Context(), "select pawl_v1.job_retry(j.id, 'ann', 'now') from pawl.job as j"); err != nil {
		b.Fatal(err)
	}
}

// A retried dead letter replays its call, or calls nothing if its semantic key took effect
// meanwhile.
func TestLong_ARetryOfASemanticKey(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]bool{"took effect": true, "did not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			provider := pawltest.NewProvider(t, time.Hour, nil)
			failing := true
			b.refunding(provider, step.AtMostOnce(), func(_ context.Context, a *consumer.Attempt[[]byte]) error {
				if failing && a.Key == "order-1" {
					return pawl.Final(errors.New("never"))
				}
				return nil
			})
			b.source.Send(refund(1))
			b.consume()
			b.wantEffects(0)
			if second {
				b.source.Send(refund(2))
				b.consume()
				b.wantEffects(1)
			}
			failing = false
			b.retryAll(true)
			b.consume()
			b.wantEffects(1)
			b.wantCalls(provider, 1, 1)
		})
	}
}

// While a delivery waits for a verdict on its call, another delivery of its semantic key waits too.
func TestLong_AVerdictIsForTheSemanticKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	provider := pawltest.NewProvider(t, time.Hour, func(int, *http.Request) pawltest.Lie { return pawltest.CutAfter })
	b.refunding(provider, step.AtMostOnce(), succeed)
	stop := b.start()
	b.source.Send(refund(1))
	b.until("it waits", func() bool { return b.count("select count(*) from pawl.job where status = 'unknown'") == 1 })
	b.source.Send(refund(2))
	b.until("the other one waits too", func() bool { return b.counters.Count(pawl.EventSnoozed) > 0 })
	var outcome string
	if err := b.asks.QueryRow(t.Context(), `select s.outcome from pawl.step as e
	 cross join lateral pawl_v1.step_settle(e.scope, e.key, e.step, e.fence, 'executed', 'ada', 'seen in their dashboard', '{"result": "{}"}') as s`).Scan(&outcome); err != nil || outcome != "settled" {
		t.Fatal(outcome, err)
	}
	b.until("one took effect", func() bool { return b.count("select count(*) from effect") == 1 })
	b.retryPending()
	b.until("nothing is left", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	b.wantEffects(1)
	b.wantCalls(provider, 1, 1)
}
