package guard_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// post charges a card. The transport sends the key of the step's call.
func post(ctx context.Context, to string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to+"/charges", strings.NewReader("1250 EUR"))
	if err != nil {
		return "", err
	}
	answer, err := (&http.Client{Transport: &step.Transport{}}).Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	return "charged", step.HTTPStatus(answer.StatusCode, "")
}

func pay(ctx context.Context, pool *pgxpool.Pool, c *guard.Claimed, to string) (string, error) {
	s := step.Step{Name: "charge", Recovery: step.Keyed(time.Hour), Request: "1250 EUR", Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}
	return step.Run(ctx, pool, c, s, func(ctx context.Context, _ step.Call) (string, error) { return post(ctx, to) })
}

// age makes the claim of row 1 an hour older, so that it is stuck.
func age(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "update orders set claimed_at = claimed_at - interval '1 hour' where id = 1"); err != nil {
		t.Fatal(err)
	}
}

// A reply is lost, then a process dies after its call. The attempts after it charge nothing, and
// the third does not even ask.
func TestClaimed_OwnsSteps(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders)
	provider := pawltest.NewProvider(t, time.Hour, func(n int, _ *http.Request) pawltest.Lie {
		if n == 0 {
			return pawltest.CutAfter
		}
		return ""
	})
	rows := rowsOf(t, pool, table)
	driven := make(chan string, 10)
	first, _ := run(t, rows, guard.SweeperConfig{Every: 10 * time.Millisecond, Hooks: new(ears).hooks()}, func(_ context.Context, id string) error {
		driven <- id
		return nil
	}, 1)
	if _, err := pay(t.Context(), pool, first, provider.URL); err == nil {
		t.Error("the reply was lost, and there is no error")
	}
	claim := func() *guard.Claimed {
		t.Helper()
		age(t, pool)
		if id := <-driven; id != "1" {
			t.Fatalf("row %s was driven", id)
		}
		c, err := rows.Claim(t.Context(), "1") // another form of the id
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range 2 { // the second holder dies
		c := claim()
		if c.Owner() != first.Owner() {
			t.Errorf("owners %+v and %+v", first.Owner(), c.Owner())
		}
		if result, err := pay(t.Context(), pool, c, provider.URL); err != nil || result != "charged" {
			t.Errorf("%s, %v", result, err)
		}
	}
	if charges, requests := len(provider.Charges()), provider.Requests(); charges != 1 || requests != 2 {
		t.Errorf("%d charges in %d requests, want 1 in 2", charges, requests)
	}
	wantText(t, pool, "select string_agg(concat_ws(' ', scope, key, step, status, job_id), ', ') from pawl.step", "guard/public.orders 1 charge succeeded")
}

// A late holder plans no step, so it makes no call. That is an event.
func TestClaimed_ALateHolderCallsNothing(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders)
	provider := pawltest.NewProvider(t, time.Hour, nil)
	rows := rowsOf(t, pool, table)
	var e ears
	driven := make(chan string, 10)
	late, stop := run(t, rows, guard.SweeperConfig{Every: 10 * time.Millisecond, Hooks: e.hooks()}, func(_ context.Context, id string) error {
		driven <- id
		return nil
	}, 1)
	age(t, pool)
	<-driven
	for _, name := range []string{"pending", "claimed by another"} {
		if name != "pending" {
			if _, err := rows.Claim(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := pay(t.Context(), pool, late, provider.URL); !errors.Is(err, pawl.ErrFenceLost) || !pawl.Swept(err) {
			t.Errorf("%s: %v", name, err)
		}
		db := stdlib.OpenDBFromPool(pool)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := late.Hold(t.Context(), pawl.SQLTx(tx)); !errors.Is(err, pawl.ErrFenceLost) {
			t.Errorf("%s, database/sql: %v", name, err)
		}
		_ = tx.Rollback()
		_ = db.Close()
	}
	stop()
	if n := provider.Requests(); n != 0 {
		t.Errorf("%d requests", n)
	}
	wantText(t, pool, "select count(*)::text from pawl.step", "0")
	e.want(t, "stale_takeover guard.sweep orders  x1", "stale_write_refused guard.hold orders 1 x1")
}

// An operator finds a call in doubt by its row and table, with the table's name as events have it.
// It is not listed as orphaned while its row may be tried again.
func TestClaimed_AnOperatorFindsItsSteps(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders)
	provider := pawltest.NewProvider(t, time.Hour, func(int, *http.Request) pawltest.Lie { return pawltest.CutAfter })
	c, _ := run(t, rowsOf(t, pool, table), guard.SweeperConfig{}, func(context.Context, string) error { return nil }, 1)
	if _, err := pay(t.Context(), pool, c, provider.URL); err == nil {
		t.Fatal("the reply was lost, and there is no error")
	}
	for _, scope := range []string{table.Name, "public.orders", c.Owner().Scope, ""} {
		story, err := ops.Explain(t.Context(), pool, "1", scope)
		if err != nil || len(story.Moments) != 4 || story.Moments[0].Kind != "step" || story.Moments[0].Scope != "guard/public.orders" {
			t.Errorf("scope %q: %+v, %v", scope, story, err)
		}
	}
	older := func(age string) {
		t.Helper()
		for _, sql := range []string{"update pawl.step set updated_at = clock_timestamp() - $1::interval",
			"update pawl.step_call set not_after = clock_timestamp() - $1::interval, started_at = clock_timestamp() - $1::interval"} {
			if _, err := pool.Exec(t.Context(), sql, age); err != nil {
				t.Fatal(err)
			}
		}
	}
	stales := func() []ops.Stale {
		t.Helper()
		s, err := ops.Stales(t.Context(), pool, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	older("1 hour")
	if s := stales(); len(s) != 0 {
		t.Errorf("%+v", s)
	}
	older("3 hours")
	if s := stales(); len(s) != 1 || s[0].Class != "orphaned" || !strings.Contains(s[0].Advice, "row 1 of public.orders") {
		t.Errorf("%+v", s)
	}
}

// While a transaction holds the row, a sweeper skips it, and rows of other tables may refer to it.
func TestClaimed_HoldLocksTheRow(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, "create table line (order_id bigint references orders)")
	rows := rowsOf(t, pool, table)
	held, stop := run(t, rows, guard.SweeperConfig{}, func(context.Context, string) error { return nil }, 1)
	stop()
	sweeper, err := rows.Sweeper(guard.SweeperConfig{StuckAfter: time.Nanosecond}, func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	pass := func(want int) {
		t.Helper()
		if driven, err := sweeper.Pass(t.Context()); err != nil || driven != want {
			t.Errorf("the pass drove %d rows, %v; want %d", driven, err, want)
		}
	}
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := held.Hold(t.Context(), tx); err != nil {
			return err
		}
		if _, err := pool.Exec(t.Context(), "set local lock_timeout = '10s'; insert into line values (1)"); err != nil {
			t.Error(err)
		}
		pass(0)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	pass(1)
}

// The owner names the table with its schema, also if the mapping does not, or if the row is in a
// partition.
func TestClaimed_OwnerIsTheRow(t *testing.T) {
	t.Parallel()
	const parted = `create schema "Shop"; create table "Shop"."the orders" (like orders including defaults) partition by list (result);
create table first partition of "Shop"."the orders" default; insert into "Shop"."the orders" (id) values (1)`
	pool := pawltest.DB(t, orders, parted)
	owner := func(name string) pawl.Owner {
		t.Helper()
		c, _ := run(t, rowsOf(t, pool, guard.Table{Name: name}), guard.SweeperConfig{}, func(context.Context, string) error { return nil }, 1)
		if err := c.Fail(t.Context(), pawl.Final(errors.New("ended"))); err != nil && !errors.Is(err, pawl.ErrFailureRecorded) {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), "update orders set status = 'pending'"); err != nil {
			t.Fatal(err)
		}
		return c.Owner()
	}
	short, long, other := owner("orders"), owner("public.orders"), owner("Shop.the orders")
	if short != long || short != (pawl.Owner{Scope: "guard/public.orders", Key: "1"}) {
		t.Errorf("%+v and %+v", short, long)
	}
	if other != (pawl.Owner{Scope: `guard/"Shop"."the orders"`, Key: "1"}) {
		t.Errorf("%+v", other)
	}
}
