package guard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/pawltest"
)

// If the reply to a Commit or Fail is lost, the next call of the claim tells what became of it. A
// row that the claim has ended itself is not reported as a late write.
func TestClaim_ALostReplyIsNotLate(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	commit := func(ctx context.Context, _ *pgxpool.Pool, c *guard.Claimed) error { return c.Commit(ctx, ship(1)) }
	fail := func(ctx context.Context, _ *pgxpool.Pool, c *guard.Claimed) error { return c.Fail(ctx, boom) }
	hold := func(ctx context.Context, pool *pgxpool.Pool, c *guard.Claimed) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return c.Hold(ctx, tx) })
	}
	const result, failure = `"result" = $2`, `"last_error" = $3` // sent with COMMIT, and by Fail
	type call = func(context.Context, *pgxpool.Pool, *guard.Claimed) error
	for name, c := range map[string]struct {
		cut         wireproxy.Cut
		aim         string
		first, then call
		want        error
		row         string
	}{
		"commit, fail":          {wireproxy.BeforeReply, result, commit, fail, pawl.ErrAlreadyHandled, "completed 1 shipped t 1"},
		"commit, commit":        {wireproxy.BeforeReply, result, commit, commit, pawl.ErrAlreadyHandled, "completed 1 shipped t 1"},
		"commit, hold":          {wireproxy.BeforeReply, result, commit, hold, pawl.ErrFenceLost, "completed 1 shipped t 1"},
		"fail, fail":            {wireproxy.BeforeReply, failure, fail, fail, pawl.ErrAlreadyHandled, "error 1 boom f 0"},
		"fail, commit":          {wireproxy.BeforeReply, failure, fail, commit, pawl.ErrAlreadyHandled, "error 1 boom f 0"},
		"no commit, then fail":  {wireproxy.BeforeSend, result, commit, fail, pawl.ErrFailureRecorded, "error 1 boom f 0"},
		"no commit, commit":     {wireproxy.BeforeSend, result, commit, commit, nil, "completed 1 shipped t 1"},
		"no failure, then fail": {wireproxy.BeforeSend, failure, fail, fail, pawl.ErrFailureRecorded, "error 1 boom f 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through := wireproxy.Start(t, pawltest.URL(t, orders))
			pool := describing(t, through)
			var e ears
			claim, stop := run(t, rowsOf(t, pool, table), guard.SweeperConfig{Hooks: e.hooks()}, func(context.Context, string) error { return nil }, 1)
			cutOnce(proxy, c.aim, c.cut)
			if err := c.first(t.Context(), pool, claim); err == nil || errors.Is(err, pawl.ErrFailureRecorded) || errors.Is(err, pawl.ErrAlreadyHandled) || proxy.Cuts() != 1 {
				t.Fatalf("the first call: %v; %d cuts", err, proxy.Cuts())
			}
			if err := c.then(t.Context(), pool, claim); !errors.Is(err, c.want) {
				t.Errorf("the second call: %v, want %v", err, c.want)
			}
			var got string
			if err := pool.QueryRow(t.Context(), order1).Scan(&got); err != nil || got != c.row {
				t.Errorf("the row is %q, %v; want %q", got, err, c.row)
			}
			stop()
			e.want(t)
		})
	}
}

// After a Fail without a reply, a claim whose row a Sweeper has made final is late, although the
// row keeps the claim's token.
func TestClaim_AFinalRowOfAnotherIsLate(t *testing.T) {
	t.Parallel()
	proxy, through := wireproxy.Start(t, pawltest.URL(t, orders))
	pool := describing(t, through)
	rows := rowsOf(t, pool, table)
	var e ears
	claim, stop := run(t, rows, guard.SweeperConfig{Hooks: e.hooks(), MaxAttempts: 1}, func(context.Context, string) error { return nil }, 1)
	cutOnce(proxy, `"last_error" = $3`, wireproxy.BeforeSend)
	if err := claim.Fail(t.Context(), errors.New("boom")); err == nil || errors.Is(err, pawl.ErrFailureRecorded) {
		t.Fatal(err)
	}
	sweeper, err := rows.Sweeper(guard.SweeperConfig{MaxAttempts: 1, StuckAfter: time.Microsecond}, func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the row is final", func() bool { // a pass skips rows that the other one has locked
		if _, err := sweeper.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := pool.QueryRow(t.Context(), "select concat_ws(' ', status, last_error) from orders where id = 1").Scan(&got); err != nil {
			t.Fatal(err)
		}
		return got == "error final: the last attempt died, or took longer than StuckAfter"
	})
	if err := claim.Fail(t.Context(), errors.New("boom")); !errors.Is(err, pawl.ErrFenceLost) {
		t.Error(err)
	}
	stop()
	e.want(t, "stale_write_refused guard.fail orders 1 x1")
}

// describing returns a pool that sends the text of a statement each time: see wireproxy.Executes.
// It has one connection: no call may wait for another while it has a transaction open.
func describing(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// cutOnce cuts the next statement that contains text.
func cutOnce(proxy *wireproxy.Proxy, text string, how wireproxy.Cut) {
	var once sync.Once
	proxy.OnCommit(func() (cut wireproxy.Cut) {
		once.Do(func() { cut = how })
		return cut
	})
	proxy.Aim(wireproxy.Executes(text))
}
