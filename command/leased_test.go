package command_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
)

func commitOrder(ctx context.Context, a *command.Attempt[order]) error {
	return a.Commit(ctx, place("leased"))
}

func (b *bed) leased(key, payload string, o command.LeaseOptions, fn func(context.Context, *command.Attempt[order]) error) (command.Result[order], error) {
	b.Helper()
	o.Hooks = b.hooks()
	return command.Leased(b.Context(), b.pool, intent(key, payload), o, fn)
}

// begin claims a command without a handler.
func (b *bed) begin(key string, o command.LeaseOptions) *command.Attempt[order] {
	b.Helper()
	o.Hooks, o.Wait = b.hooks(), -1
	a, _, err := command.Begin[order](b.Context(), b.pool, intent(key, "p"), o)
	b.must(err)
	if a == nil {
		b.Fatal("no attempt")
	}
	b.Cleanup(a.Close)
	return a
}

// A command is replayed across both forms.
func TestLeased_AnswersAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.leased("k", "p", command.LeaseOptions{}, commitOrder)
	b.must(err)
	second, err := b.leased("k", "p", command.LeaseOptions{}, func(context.Context, *command.Attempt[order]) error {
		t.Error("entered")
		return nil
	})
	b.must(err)
	third, err := b.once("k", "p", place("never"))
	b.must(err)
	if first.Replayed || !second.Replayed || !third.Replayed || first.Value != second.Value || first.Value != third.Value {
		t.Errorf("%+v, %+v, %+v", first, second, third)
	}
	b.wantOrders(1)
}

// Another payload is a mismatch while an attempt runs, and after its lease expired (trap T7).
func TestT7_MismatchBeforeInProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.begin("k", command.LeaseOptions{})
	fast := command.LeaseOptions{Wait: -1}
	for range 2 {
		_, err := b.leased("k", "another", fast, commitOrder)
		b.wantError(err, pawl.ErrKeyReused)
		_, err = b.once("k", "another", place("never"))
		b.wantError(err, pawl.ErrKeyReused)
		b.exec(expire)
	}
	b.must(a.Commit(t.Context(), place("one")))
	_, err := b.leased("k", "another", fast, commitOrder)
	b.wantError(err, pawl.ErrKeyReused)
	b.wantOrders(1)
}

func TestLeased_InProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.begin("k", command.LeaseOptions{})
	_, err := b.leased("k", "p", command.LeaseOptions{Wait: -1}, commitOrder)
	b.wantError(err, pawl.ErrInProgress)
	answered := make(chan error, 1)
	go func() {
		r, err := b.leased("k", "p", command.LeaseOptions{}, commitOrder)
		if err == nil && !r.Replayed {
			err = errors.New("it ran")
		}
		answered <- err
	}()
	b.must(a.Commit(t.Context(), place("one")))
	b.must(<-answered)
	b.wantOrders(1)
}

// An expired lease makes the command unknown. A late Commit of the attempt still succeeds.
func TestLeased_SilenceIsUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.begin("k", command.LeaseOptions{})
	b.exec(expire)
	for range 2 {
		_, err := b.leased("k", "p", command.LeaseOptions{}, commitOrder)
		b.wantError(err, pawl.ErrOutcomeUnknown)
		_, err = b.once("k", "p", place("never"))
		b.wantError(err, pawl.ErrOutcomeUnknown)
	}
	b.wantStatus("unknown 1")
	b.want("select count(*) from pawl_v1.stale_commands", 1)
	b.must(a.Commit(t.Context(), place("one")))
	r, err := b.leased("k", "p", command.LeaseOptions{}, commitOrder)
	b.must(err)
	if !r.Replayed || r.Value.Body != "one" {
		t.Errorf("%+v", r)
	}
	b.wantOrders(1)
}

// A repeatable command is taken over. The stale attempt is refused for good, even if a savepoint
// hides the first refusal, and its rows are rolled back (traps T3, T4).
func TestT3_TheZombieIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := command.LeaseOptions{Repeatable: true}
	zombie := b.begin("k", o)
	b.exec(expire)
	heir := b.begin("k", o)
	if heir.Fence() <= zombie.Fence() || heir.Number() != 2 {
		t.Errorf("fence %d after %d, attempt %d", heir.Fence(), zombie.Fence(), heir.Number())
	}
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	_, err = tx.Exec(t.Context(), "insert into orders (body) values ('zombie')")
	b.must(err)
	nested, err := tx.Begin(t.Context())
	b.must(err)
	b.wantError(zombie.Finish(t.Context(), nested, order{}), pawl.ErrFenceLost)
	b.must(nested.Rollback(t.Context())) // as an ORM may do
	b.wantError(zombie.Finish(t.Context(), tx, order{}), pawl.ErrFenceLost)
	b.must(tx.Rollback(t.Context()))
	b.wantError(zombie.Commit(t.Context(), place("zombie")), pawl.ErrFenceLost)
	b.wantError(zombie.Succeed(t.Context(), order{}), pawl.ErrFenceLost)
	b.wantError(zombie.Fail(t.Context(), errors.New("boom")), pawl.ErrFenceLost)
	if zombie.Context().Err() == nil || b.counters.Count(pawl.EventStaleWriteRefused) != 1 {
		t.Error("the zombie lives on")
	}
	b.until(fmt.Sprintf("select count(*) from pawl_v1.explain('k') as e where e.kind = 'command' and e.event = 'stale_write_refused' and e.detail ->> 'fence' = '%d'", zombie.Fence()), 1)
	b.must(heir.Commit(t.Context(), place("heir")))
	b.wantOrders(1)
	b.wantStatus("succeeded 2")
}

// The heartbeat renews the lease (trap T6), and ends the context after a takeover.
func TestT6_HeartbeatAndItsLoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.begin("k", command.LeaseOptions{Lease: 24 * time.Second, Repeatable: true})
	b.until("select count(*) from pawl.command where lease_expires_at > created_at + interval '30 seconds'", 1)
	if a.Context().Err() != nil {
		t.Error("lost while it was renewed")
	}
	b.exec("update pawl.command set fence = nextval('pawl.fence_seq')") // another attempt
	<-a.Context().Done()
	b.wantError(context.Cause(a.Context()), pawl.ErrFenceLost)
	b.wantError(a.Commit(t.Context(), place("zombie")), pawl.ErrFenceLost)
	b.wantOrders(0)
}

// Each kind of end of a handler gives the expected status.
func TestLeased_Failures(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		o      command.LeaseOptions
		fn     func(context.Context, *command.Attempt[order]) error
		want   error
		status string
	}{
		"plain":             {fn: func(context.Context, *command.Attempt[order]) error { return boom }, want: boom, status: "failed_retryable 1"},
		"final":             {fn: func(context.Context, *command.Attempt[order]) error { return pawl.Final(boom) }, want: pawl.ErrFailedFinal, status: "failed_final 1"},
		"unknown":           {fn: func(context.Context, *command.Attempt[order]) error { return command.Unknown(boom) }, want: pawl.ErrOutcomeUnknown, status: "unknown 1"},
		"panic":             {fn: func(context.Context, *command.Attempt[order]) error { panic("bang") }, want: pawl.ErrOutcomeUnknown, status: "unknown 1"},
		"panic, repeatable": {o: command.LeaseOptions{Repeatable: true}, fn: func(context.Context, *command.Attempt[order]) error { panic("bang") }, status: "failed_retryable 1"},
		"overrun": {o: command.LeaseOptions{Timeout: 20 * time.Millisecond}, fn: func(ctx context.Context, _ *command.Attempt[order]) error {
			<-ctx.Done()
			return ctx.Err()
		}, want: pawl.ErrOutcomeUnknown, status: "unknown 1"},
		"the database is away at its end": {fn: func(context.Context, *command.Attempt[order]) error {
			return pawl.Wrap("commit", &pgconn.PgError{Code: "57P01"})
		}, want: pawl.ErrOutcomeUnknown, status: "unknown 1"},
		"what cannot be stored": {fn: func(ctx context.Context, a *command.Attempt[order]) error {
			return a.Succeed(ctx, order{Body: strings.Repeat("x", 5<<20)})
		}, status: "failed_retryable 1"},
		"nothing said": {fn: func(context.Context, *command.Attempt[order]) error { return nil }, status: "succeeded 1"},
		"error after its end": {fn: func(ctx context.Context, a *command.Attempt[order]) error {
			return errors.Join(a.Succeed(ctx, order{}), boom)
		}, status: "succeeded 1"},
		"a commit that fails": {fn: func(ctx context.Context, a *command.Attempt[order]) error {
			return a.Commit(ctx, fails(boom))
		}, want: boom, status: "failed_retryable 1"},
		"a commit that fails, and another": {fn: func(ctx context.Context, a *command.Attempt[order]) error {
			_ = a.Commit(ctx, fails(boom))
			return a.Commit(ctx, fails(nil))
		}, status: "succeeded 1"},
		"two ends": {fn: func(ctx context.Context, a *command.Attempt[order]) error {
			if err := a.Succeed(ctx, order{}); err != nil {
				return err
			}
			if err := a.Commit(ctx, place("second")); !errors.Is(err, pawl.ErrFenceLost) {
				return errors.New("a second end was accepted")
			}
			return nil
		}, status: "succeeded 1"},
		"finished in a transaction of its own": {fn: func(ctx context.Context, a *command.Attempt[order]) error {
			return own(ctx, a, true)
		}, status: "succeeded 1"},
		"finished, and rolled back": {fn: func(ctx context.Context, a *command.Attempt[order]) error {
			return own(ctx, a, false)
		}, status: "failed_retryable 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ctx := context.WithValue(t.Context(), poolKey{}, b.pool)
			c.o.Hooks = b.hooks()
			_, err := command.Leased(ctx, b.pool, intent("k", "p"), c.o, c.fn)
			if c.want != nil {
				b.wantError(err, c.want)
			}
			if c.status == "succeeded 1" && err != nil || c.status != "succeeded 1" && err == nil {
				t.Errorf("got %v", err)
			}
			b.wantStatus(c.status)
		})
	}
}

type poolKey struct{}

// own ends the command in a transaction of the handler.
func own(ctx context.Context, a *command.Attempt[order], commit bool) error {
	tx, err := ctx.Value(poolKey{}).(interface {
		Begin(context.Context) (pgx.Tx, error)
	}).Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := a.Hold(ctx, tx); err != nil {
		return err
	}
	if err := a.Finish(ctx, tx, order{Body: "own"}); err != nil || !commit {
		return err
	}
	return tx.Commit(ctx)
}

// The fence is checked before the function runs, so a stale attempt does not run it.
func TestAttempt_StaleCommitIsNotEntered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	zombie := b.begin("k", command.LeaseOptions{Repeatable: true})
	b.exec(expire)
	b.begin("k", command.LeaseOptions{Repeatable: true})
	err := zombie.Commit(t.Context(), func(context.Context, pgx.Tx) (order, error) {
		t.Error("entered")
		return order{}, nil
	})
	b.wantError(err, pawl.ErrFenceLost)
}

// The refusal of a late attempt is reported once. Any end may meet it first, and later ends add
// nothing.
func TestAttempt_ARefusalIsReportedOnce(t *testing.T) {
	t.Parallel()
	ends := map[string]func(context.Context, *command.Attempt[order]) error{
		"fail":    func(ctx context.Context, a *command.Attempt[order]) error { return a.Fail(ctx, errors.New("boom")) },
		"succeed": func(ctx context.Context, a *command.Attempt[order]) error { return a.Succeed(ctx, order{}) },
		"commit":  commitOrder,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			zombie := b.begin("k", command.LeaseOptions{Repeatable: true})
			b.exec(expire)
			b.begin("k", command.LeaseOptions{Repeatable: true})
			b.wantError(end(t.Context(), zombie), pawl.ErrFenceLost)
			for _, again := range ends {
				b.wantError(again(t.Context(), zombie), pawl.ErrFenceLost)
			}
			if n := b.counters.Count(pawl.EventStaleWriteRefused); n != 1 {
				t.Errorf("%d events, want 1", n)
			}
			b.until("select count(*) from pawl.stale_write", 1)
		})
	}
}

// A refusal is recorded in the background. On a pool of one connection, which the caller's
// transaction holds, the call waits for no other connection, and the record follows.
func TestAttempt_ARefusalWaitsForNoConnection(t *testing.T) {
	t.Parallel()
	lend := func(end func(context.Context, *command.Attempt[order], pgx.Tx) error) func(context.Context, *pgxpool.Pool, *command.Attempt[order], func()) error {
		return func(ctx context.Context, pool *pgxpool.Pool, a *command.Attempt[order], check func()) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				defer check()
				return end(ctx, a, tx)
			})
		}
	}
	for name, end := range map[string]func(context.Context, *pgxpool.Pool, *command.Attempt[order], func()) error{
		"hold": lend(func(ctx context.Context, a *command.Attempt[order], tx pgx.Tx) error { return a.Hold(ctx, tx) }),
		"finish": lend(func(ctx context.Context, a *command.Attempt[order], tx pgx.Tx) error {
			return a.Finish(ctx, tx, order{})
		}),
		"commit": func(ctx context.Context, _ *pgxpool.Pool, a *command.Attempt[order], check func()) error {
			defer check()
			return commitOrder(ctx, a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			other := b.pool
			config := b.pool.Config()
			config.MaxConns = 1
			small, err := pgxpool.NewWithConfig(context.Background(), config)
			b.must(err)
			t.Cleanup(small.Close)
			b.pool = small
			zombie := b.begin("k", command.LeaseOptions{Lease: time.Hour, Repeatable: true})
			b.pool = other
			b.exec(expire)
			b.begin("k", command.LeaseOptions{Lease: time.Hour, Repeatable: true})
			b.wantError(end(t.Context(), small, zombie, func() {
				if n := small.Stat().CanceledAcquireCount(); n != 0 {
					t.Errorf("%d requests for a connection were given up meanwhile", n)
				}
			}), pawl.ErrFenceLost)
			if !t.Failed() {
				b.until("select count(*) from pawl.stale_write", 1)
			}
		})
	}
}
