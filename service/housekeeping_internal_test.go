package service

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// An app purges commands and steps whose retention is over, in more than one batch.
func TestHousekeeper_Purges(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	for _, statement := range []string{
		`select pawl_v1.command_claim('s', 'old ' || g, sha256('')) from generate_series(1, 1500) as g`,
		`select pawl_v1.command_succeed('s', c.key, c.fence) from pawl.command as c`,
		`update pawl.command set created_at = created_at - interval '3 days', expires_at = expires_at - interval '3 days'`,
		`select pawl_v1.command_claim('s', 'new', sha256(''))`,
	} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	app, err := New(pool, Config{})
	if err != nil {
		t.Fatal(err)
	}
	app.house.purgeEvery = 10 * time.Millisecond
	app.Add(Part{Name: "idle", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx) }()
	patience.Until(t, "the old commands are purged", func() bool { return count(t, pool, "select count(*) from pawl.command") == 1 })
	stop()
	if err := patience.Receive(t, "Run returns", ended); err != nil {
		t.Error(err)
	}
}

// Replays are added to the scope's count. If the database refuses, they are kept and added later.
func TestHousekeeper_KeepsReplaysThatItCannotWrite(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	if _, err := pool.Exec(t.Context(), "select pawl_v1.command_claim('s', 'k', sha256(''))"); err != nil {
		t.Fatal(err)
	}
	k := newHousekeeper(pool)
	var errs int
	ctx := pawl.WithHooks(t.Context(), pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventError && e.Op == "command.replayed" {
			errs++
		}
	}})
	hooks := k.hooks(pawl.Hooks{})
	for range 3 {
		hooks.Emit(ctx, pawl.Event{Kind: pawl.EventReplay, Scope: "s"})
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "lock table pawl.replay"); err != nil {
		t.Fatal(err)
	}
	k.writeReplays(ctx) // lock_timeout is 2 s
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	const replays = "select s.replays from pawl_v1.suppression_by_scope as s where s.scope = 's'"
	if n := count(t, pool, replays); n != 0 || errs != 1 {
		t.Errorf("%d replays, %d errors; want 0 and 1", n, errs)
	}
	for range 2 {
		k.writeReplays(ctx)
		if n := count(t, pool, replays); n != 3 || errs != 1 {
			t.Errorf("%d replays, %d errors; want 3 and 1", n, errs)
		}
	}
}

// Replays in more scopes than one call takes are written in several calls.
func TestHousekeeper_WritesReplaysOfManyScopes(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	k := newHousekeeper(pool)
	for n := range 2*mostScopes + 1 {
		k.count(fmt.Sprintf("tenant %d", n), 1)
	}
	k.writeReplays(t.Context())
	if n := count(t, pool, "select count(*) from pawl.replay"); n != 2*mostScopes+1 || len(k.replays) != 0 {
		t.Errorf("%d scopes written, %d left", n, len(k.replays))
	}
}

func count(t *testing.T, pool *pgxpool.Pool, query string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
