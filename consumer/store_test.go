package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// In mode StoreFirst a delivery is acknowledged first and takes effect once, in its order.
func TestStore_StoresThenWorks(t *testing.T) {
	t.Parallel()
	b := setup(t, ran)
	goOn := make(chan struct{})
	leave := sync.OnceFunc(func() { close(goOn) })
	// A worker that lost its lease would abandon these handlers, with their connections.
	b.form.Mode, b.form.Lease = consumer.StoreFirst, time.Minute
	b.form.handle = func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		<-goOn
		if d.OrderingKey != "" {
			return note(ctx, tx, d)
		}
		return apply(ctx, tx, d)
	}
	for n := range 20 {
		b.source.Send(order(n), order(n), ordered("l", n))
	}
	stop := b.start()
	t.Cleanup(leave) // before the consumer is stopped, which waits for its handlers
	b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
	b.wantEffects(0)
	leave()
	b.until("all worked on", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	b.wantEffects(20)
	b.wantOrder(1, 20)
	if n := b.count("select count(*) from pawl.inbox where processed_at is null"); n != 0 {
		t.Errorf("%d inbox rows are not settled", n)
	}
}

// long consumes deliveries with a Handle until none is open.
func (b *bed) long(handler workFunc, ds ...pawl.Delivery) {
	b.Helper()
	b.form.handle, b.form.work = nil, handler
	b.source.Send(ds...)
	b.consume()
	if n := b.count("select count(*) from pawl.inbox where processed_at is null and not exists (select from pawl.job where id = job_id)"); n != 0 {
		b.Errorf("%d inbox rows are not settled", n)
	}
}

// Writes through Commit take effect once, together with the end of the delivery.
func TestLong_CommitsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var calls atomic.Int32
	b.long(func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		if calls.Add(1); a.Number() == 1 && a.Key == "order-1" {
			return job.RetryAfter(time.Millisecond, errors.New("the other side is away"))
		}
		if a.Fence() < 1 || a.Job() < 1 {
			t.Errorf("fence %d, job %d", a.Fence(), a.Job())
		}
		err := a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
		if again := a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) }); again == nil {
			t.Error("committed twice")
		}
		return err
	}, order(1), order(1), order(2))
	b.wantEffects(2)
	if calls.Load() != 3 {
		t.Errorf("%d calls, want 3", calls.Load())
	}
}

// Returning nil without a Commit settles the delivery. A swallowed error of Commit does not.
func TestLong_ASwallowedErrorSettlesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.form.MaxAttempts = 2
	b.long(func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		if a.Key == "order-2" {
			_ = a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(apply(ctx, tx, a.Delivery), errors.New("boom"))
			})
		}
		return nil
	}, order(1), order(2))
	b.wantEffects(0)
	if n := b.count("select count(*) from pawl_v1.dead_letters where headers ->> 'pawl-key' = 'order-2' and attempts = 2"); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

func TestLong_LateAttemptIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var refused atomic.Int32
	b.long(func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
		if a.Number() == 1 { // another worker claims the job, as after an expired lease
			_, err := b.pool.Exec(ctx, "update pawl.job set fence = fence + 1, status = 'pending', claimed_by = null, lease_expires_at = null where id = $1", a.Job())
			if err != nil {
				return err
			}
		}
		err := a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
		if errors.Is(err, pawl.ErrFenceLost) {
			refused.Add(1)
		}
		return err
	}, order(1))
	b.wantEffects(1)
	if refused.Load() != 1 {
		t.Errorf("refused %d times", refused.Load())
	}
}

// A stored delivery is restored as it was received. The job's headers show its place in the log.
func TestStore_ComesBackWhole(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]pawl.Delivery{
		"of a queue": {Key: "a", MessageID: "m", Payload: []byte("x")},
		"of a log": {Key: "a", MessageID: "orders#5f/3/9007199254740993", OrderingKey: "account", SemanticKey: "order-1", Payload: []byte("x"),
			Attributes: map[string]string{"type": "placed"}, Log: "orders/3", Offset: 9007199254740993,
			SentAt: time.Now().UTC().Truncate(time.Microsecond), ProducedAt: time.Now().UTC().Add(-time.Hour).Truncate(time.Microsecond)},
		"at the start of a log": {Key: "a", MessageID: "m", Payload: []byte("x"), Log: "orders/0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.form.Mode = consumer.StoreFirst
			got, goOn := make(chan pawl.Delivery, 1), make(chan struct{})
			leave := sync.OnceFunc(func() { close(goOn) })
			b.form.handle = func(_ context.Context, _ pgx.Tx, d pawl.Delivery) error {
				got <- d
				<-goOn
				return nil
			}
			b.source.Send(d)
			b.start()
			t.Cleanup(leave)
			back := <-got
			d.Receives, d.Handle = 1, nil // the number of the try, and no broker handle
			if !reflect.DeepEqual(back, d) {
				t.Errorf("came back as\n%+v, want\n%+v", back, d)
			}
			if d.Log != "" {
				place := fmt.Sprintf("headers ->> 'pawl-log' = '%s' and headers ->> 'pawl-offset' = '%d'", d.Log, d.Offset)
				if n := b.count("select count(*) from pawl.job where " + place); n != 1 {
					t.Errorf("%d jobs name the place in the log", n)
				}
			}
			leave()
		})
	}
}

// At a first try the handler can control the retry as in a job.
func TestHandler_ControlsTheRetryAtItsFirstTry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ask  error
		want string // status of its job
	}{
		"snooze":      {job.Snooze(time.Hour), "pending 0 t"},
		"wait":        {job.WaitFor("the order", time.Hour, 24*time.Hour), "pending 0 t"},
		"retry after": {job.RetryAfter(time.Hour, errors.New("busy")), "pending 1 t"},
		"cancel":      {job.Cancel(errors.New("not wanted any more")), "cancelled 1 f"},
	} {
		for form, set := range map[string]func(b *bed){
			"tx": func(b *bed) {
				b.form.handle = func(context.Context, pgx.Tx, pawl.Delivery) error { return c.ask }
			},
			"many": func(b *bed) { b.batches(func(pawl.Delivery) error { return c.ask }) },
		} {
			t.Run(form+" "+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				set(b)
				b.start()
				b.source.Send(order(1))
				b.until("acknowledged", func() bool { return b.source.Open() == 0 })
				patience.Row(t, b.asks, c.want, "select exists (select from pawl.job as j where concat_ws(' ', j.status, j.attempts, j.available_at > now() + interval '30 minutes') = '"+c.want+"')")
				b.wantEffects(0)
			})
		}
	}
}
