package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// charge runs a step of a leased delivery: one charge at a provider for s.Request.
func charge(ctx context.Context, pool *pgxpool.Pool, a *consumer.Attempt[[]byte], provider string, s step.Step) (pawltest.Charge, error) {
	client := &http.Client{Transport: &step.Transport{}}
	return step.Run(ctx, pool, a, s, func(ctx context.Context, c step.Call) (made pawltest.Charge, err error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, provider+"/charges", bytes.NewReader([]byte(s.Request.(string))))
		if err != nil {
			return made, step.NotSent(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			return made, err
		}
		defer func() { _ = answer.Body.Close() }()
		if err := step.HTTPStatus(answer.StatusCode, answer.Status); err != nil {
			return made, err
		}
		err = json.NewDecoder(answer.Body).Decode(&made)
		c.Reference(made.ID)
		return made, err
	})
}

func stepOf(name, request string, policy step.Recovery) step.Step {
	return step.Step{Name: name, Request: request, Recovery: policy, Timeout: 5 * time.Second}
}

// A stored delivery owns its steps. The next try replays finished steps under the same key, and
// calls only for the missing one. An attempt that was taken over runs no step.
func TestLong_StepsAreThoseOfTheDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.form.Lease = time.Minute // a busy machine must not lose the first attempt
	provider := pawltest.NewProvider(t, time.Hour, nil)
	var first atomic.Pointer[consumer.Attempt[[]byte]]
	var charged atomic.Value
	b.long(func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		made, err := charge(ctx, b.pool, a, provider.URL, stepOf("charge", "order 1", step.AtMostOnce()))
		if err != nil {
			return err
		}
		if a.Number() == 1 {
			first.Store(a)
			charged.Store(made)
			return job.RetryAfter(time.Millisecond, errors.New("the handler failed behind its first step"))
		}
		if before := charged.Load(); made != before || a.Owner() != first.Load().Owner() {
			t.Errorf("%+v of %+v, before %+v of %+v", made, a.Owner(), before, first.Load().Owner())
		}
		_, err = charge(ctx, b.pool, first.Load(), provider.URL, stepOf("late", "the attempt of before", step.Repeatable()))
		if !errors.Is(err, pawl.ErrFenceLost) {
			t.Errorf("the previous attempt: %v, want %v", err, pawl.ErrFenceLost)
		}
		if _, err := charge(ctx, b.pool, a, provider.URL, stepOf("fee", "its fee", step.AtMostOnce())); err != nil {
			return err
		}
		return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
	}, order(1), order(1))
	b.wantEffects(1)
	if cs := provider.Charges(); len(cs) != 2 || provider.Requests() != 2 || cs[0].Body != "order 1" || cs[1].Body != "its fee" || cs[0].Key == cs[1].Key {
		t.Errorf("%d requests made %+v", provider.Requests(), cs)
	}
	if n := b.count("select count(*) from pawl.step where scope = 'inbox/orders' and key = 'order-1' and status = 'succeeded'"); n != 2 {
		t.Errorf("%d steps have succeeded", n)
	}
}

// A delivery with a call of unknown outcome waits for a verdict, unsettled, and then continues.
func TestLong_UnknownWaitsForAVerdict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	provider := pawltest.NewProvider(t, time.Hour, func(int, *http.Request) pawltest.Lie { return pawltest.CutAfter })
	b.form.handle, b.form.MaxAttempts = nil, 1
	b.form.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		if _, err := charge(ctx, b.pool, a, provider.URL, stepOf("charge", "order 1", step.AtMostOnce())); err != nil {
			return err
		}
		return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
	}
	b.source.Send(order(1))
	b.start()
	b.until("it waits", func() bool { return b.count("select count(*) from pawl.job where status = 'unknown'") == 1 })
	b.wantEffects(0)
	if n := b.count("select count(*) from pawl.inbox where processed_at is not null"); n != 0 {
		t.Error("the delivery is settled although the outcome is unknown")
	}
	var outcome string
	if err := b.pool.QueryRow(t.Context(), `select s.outcome
		  from pawl_v1.step_settle('inbox/orders', 'order-1', 'charge', (select e.fence from pawl.step as e), 'executed', 'ada', 'seen in their dashboard', '{"result": "{}"}') as s`).Scan(&outcome); err != nil || outcome != "settled" {
		t.Fatal(outcome, err)
	}
	b.until("it goes on", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	b.wantEffects(1)
	if n := provider.Requests(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// A Commit that loses a race runs again. The work before it does not.
func TestAttempt_ALostRaceRepeatsItsCommitAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.form.handle, b.form.MaxAttempts = nil, 1
	var worked, committed atomic.Int32
	b.form.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		worked.Add(1)
		return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if err := apply(ctx, tx, a.Delivery); err != nil {
				return err
			}
			if committed.Add(1) < 3 {
				_, err := tx.Exec(ctx, "do $$ begin raise exception 'a race was lost' using errcode = '40001'; end $$")
				return err
			}
			return nil
		})
	}
	b.source.Send(order(1))
	stop := b.start()
	b.until("it is settled", func() bool {
		return b.source.Open() == 0 && b.count("select count(*) from pawl.job") == 0
	})
	stop()
	b.wantEffects(1)
	if w, c := worked.Load(), committed.Load(); w != 1 || c != 3 {
		t.Errorf("the work ran %d times and its commit %d times, want 1 and 3", w, c)
	}
}
