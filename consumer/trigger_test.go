package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
)

const things = `create table thing (id bigint primary key, status text not null default 'pending', claimed_at timestamptz, completed_at timestamptz,
  last_error text, attempt_count int not null default 0); insert into thing (id) select g from generate_series(1, 30) as g`

// A message that names a row starts its work once. Whether the row succeeds, waits or fails, the
// message is acknowledged and leaves no inbox row. A message whose row does not exist stays.
func TestTrigger_TheRowRemembers(t *testing.T) {
	t.Parallel()
	b := setup(t, things)
	rows, err := guard.New(b.pool, guard.Table{Name: "thing"})
	if err != nil {
		t.Fatal(err)
	}
	var absent atomic.Int32
	b.form.handle = nil
	b.form.trigger = func(ctx context.Context, d pawl.Delivery) error {
		var message struct{ ID int64 }
		if err := json.Unmarshal(d.Payload, &message); err != nil {
			return err
		}
		err := rows.Once(ctx, message.ID, func(ctx context.Context, tx pgx.Tx) (any, error) {
			if message.ID == 7 {
				return nil, errors.New("cannot be done")
			}
			if message.ID == 8 {
				_, err := tx.Exec(ctx, "select 'x'::int")
				return nil, err
			}
			return nil, apply(ctx, tx, d)
		})
		if errors.Is(err, pawl.ErrNotFound) {
			absent.Add(1)
		}
		return err
	}
	for n := range 30 {
		d := order(n + 1)
		d.Payload, _ = json.Marshal(map[string]int{"id": n + 1})
		b.source.Send(d, d)
	}
	b.source.Send(pawl.Delivery{Payload: []byte(`{"id": 99}`)})
	b.start()
	b.until("all but one acknowledged", func() bool { return b.source.Open() == 1 })
	b.until("the other one came again", func() bool { return absent.Load() > 1 })
	b.wantEffects(28)
	if n := b.count("select count(*) from thing where status = 'error' and last_error like 'cannot be done%' and attempt_count = 1"); n != 1 {
		t.Errorf("%d rows hold the error", n)
	}
	if n := b.count("select count(*) from pawl.inbox") + b.count("select count(*) from pawl.job"); n != 0 {
		t.Errorf("%d rows of Pawl's", n)
	}
	handled, retryable, failed := b.counters.Count(pawl.EventGuardAlreadyHandled), b.counters.Count(pawl.EventRetryable), b.counters.Count(pawl.EventFailed)
	if handled != 30 || retryable != 1 || failed != 1 {
		t.Errorf("%d already handled, %d to be tried again, %d failed", handled, retryable, failed)
	}
}

// A trigger whose error no retry can mend leaves a dead letter, because the source would deliver
// the message for ever. The trigger is called once.
func TestTrigger_AFinalErrorIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t, things)
	rows, err := guard.New(b.pool, guard.Table{Name: "thing"})
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(context.Context, pgx.Tx) (any, error) { return nil, nil }
	failures := map[string]func(context.Context) error{
		"final":          func(context.Context) error { return pawl.Final(errors.New("no such tenant")) },
		"final, wrapped": func(context.Context) error { return fmt.Errorf("summarize: %w", pawl.Final(io.EOF)) },
		"no number":      func(ctx context.Context) error { return rows.Once(ctx, "", nothing) },
		"too large":      func(ctx context.Context) error { return rows.Once(ctx, "99999999999999999999", nothing) },
		"a CHECK of ours": func(ctx context.Context) error {
			_, err := b.pool.Exec(ctx, "insert into checked values (-1)")
			return err
		},
	}
	if _, err := b.pool.Exec(t.Context(), "create table checked (n int check (n > 0))"); err != nil {
		t.Fatal(err)
	}
	var calls sync.Map
	b.form.handle = nil
	b.form.trigger = func(ctx context.Context, d pawl.Delivery) error {
		n, _ := calls.LoadOrStore(d.Key, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		return failures[d.Key](ctx)
	}
	for name := range failures {
		b.source.Send(pawl.Delivery{Key: name, MessageID: name, Payload: []byte(name)})
	}
	b.start()
	b.until("all are acknowledged", func() bool { return b.source.Open() == 0 })
	for name := range failures {
		if n, called := calls.Load(name); !called || n.(*atomic.Int32).Load() != 1 {
			t.Errorf("%s: called %v times", name, n)
		}
		if n := b.count("select count(*) from pawl_v1.dead_letters as d where convert_from(d.payload, 'UTF8') = '" + name + "' and d.attempts = 1"); n != 1 {
			t.Errorf("%s: %d dead letters", name, n)
		}
	}
}

// A message whose row is claimed is acknowledged only while a sweeper retries such rows.
func TestTrigger_ClaimedRows(t *testing.T) {
	t.Parallel()
	b := setup(t, things)
	swept, err := guard.New(b.pool, guard.Table{Name: "thing"})
	if err != nil {
		t.Fatal(err)
	}
	unswept, err := guard.New(b.pool, guard.Table{Name: "thing"})
	if err != nil {
		t.Fatal(err)
	}
	sweeper, err := swept.Sweeper(guard.SweeperConfig{}, func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	go sweeper.Run(t.Context())
	var claims []*guard.Claimed
	b.until("both are claimed", func() bool { // after the sweeper has started
		c, err := swept.Claim(t.Context(), len(claims)+1)
		if err == nil {
			claims = append(claims, c)
		}
		return len(claims) == 2
	})
	nothing := func(context.Context, pgx.Tx) (any, error) { return nil, nil }
	b.form.handle = nil
	b.form.trigger = func(ctx context.Context, d pawl.Delivery) error {
		if d.Key == "order-1" {
			return swept.Once(ctx, 1, nothing)
		}
		return unswept.Once(ctx, 2, nothing)
	}
	b.source.Send(order(1), order(2))
	b.start()
	b.until("the other one came again, and one is gone", func() bool { return b.counters.Count(pawl.EventConflict) > 1 && b.source.Open() == 1 })
	if handled := b.counters.Count(pawl.EventGuardAlreadyHandled); handled != 1 {
		t.Errorf("%d handled, want one", handled)
	}
	for _, c := range claims {
		if err := c.Commit(t.Context(), nothing); err != nil {
			t.Error(err)
		}
	}
	b.until("the other one is done", func() bool { return b.source.Open() == 0 })
}

// If a trigger's claim is taken back while it works, its message is released without an error,
// since the guard reports it. The next arrival finds the outcome of the newer attempt.
func TestTrigger_ALateClaimIsNoError(t *testing.T) {
	t.Parallel()
	b := setup(t, things)
	rows, err := guard.New(b.pool, guard.Table{Name: "thing"})
	if err != nil {
		t.Fatal(err)
	}
	var late pawl.Counters
	nothing := func(context.Context, pgx.Tx) (any, error) { return nil, nil }
	driven := make(chan error)
	sweeper, err := rows.Sweeper(guard.SweeperConfig{Every: 10 * time.Millisecond, Hooks: late.Hooks()}, func(ctx context.Context, id string) error {
		err := rows.Once(ctx, id, nothing)
		driven <- err
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); sweeper.Run(ctx) }()
	defer func() { stop(); <-ended }()
	b.until("claims are accepted", func() bool {
		_, err := rows.Claim(t.Context(), 2)
		return err == nil
	})
	b.form.handle = nil
	b.form.trigger = func(ctx context.Context, _ pawl.Delivery) error {
		c, err := rows.Claim(ctx, 1)
		if err != nil {
			return err
		}
		if _, err := b.pool.Exec(ctx, "update thing set claimed_at = claimed_at - interval '1 hour' where id = 1"); err != nil {
			return err
		}
		if err := <-driven; err != nil {
			return err
		}
		return c.Commit(ctx, nothing)
	}
	b.source.Send(order(1))
	b.start()
	b.until("the message is gone", func() bool { return b.source.Open() == 0 })
	if refused, conflicts, errs := late.Count(pawl.EventStaleWriteRefused), b.counters.Count(pawl.EventConflict), b.counters.Count(pawl.EventError); refused != 1 || conflicts != 1 || errs != 0 {
		t.Errorf("%d stale writes, %d conflicts, %d errors", refused, conflicts, errs)
	}
	if handled := b.counters.Count(pawl.EventGuardAlreadyHandled); handled != 1 {
		t.Errorf("%d handled", handled)
	}
}
