package lock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/lock"
	"github.com/pawl-go/pawl/pawltest"
)

func begin(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A transaction has a name until it ends. Others are refused meanwhile.
func TestTryLock_UntilTheEndOfTheTransaction(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	first, second := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
	want := func(tx pgx.Tx, namespace, key string, want bool) {
		t.Helper()
		if locked, err := lock.TryLock(t.Context(), tx, namespace, key); err != nil || locked != want {
			t.Errorf("%s/%s: %v, %v; want %v", namespace, key, locked, err, want)
		}
	}
	want(first, "a", "bc", true)
	want(second, "a", "bc", false)
	want(second, "ab", "c", true)
	commit(t, first)
	want(second, "a", "bc", true)
	_, err := lock.TryLock(t.Context(), begin(t, pool, pgx.ReadCommitted), "", "k")
	if !errors.Is(err, pawl.ErrScopeInvalid) {
		t.Errorf("an empty namespace: %v", err)
	}
}

// A stale attempt is refused even if it was accepted before, and its rows are rolled back.
func TestAcceptFence_RefusesTheStale(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, "create table report (body text)")
	newer := begin(t, pool, pgx.ReadCommitted)
	if err := lock.AcceptFence(t.Context(), newer, "job 1 report", 2); err != nil {
		t.Fatal(err)
	}
	commit(t, newer)
	stale := begin(t, pool, pgx.ReadCommitted)
	if _, err := stale.Exec(t.Context(), "insert into report values ('stale')"); err != nil {
		t.Fatal(err)
	}
	if err := lock.AcceptFence(t.Context(), stale, "job 1 report", 1); !errors.Is(err, pawl.ErrFenceLost) {
		t.Fatalf("got %v, want ErrFenceLost", err)
	}
	if err := stale.Commit(t.Context()); err == nil {
		t.Error("the stale attempt committed")
	}
	if err := lock.AcceptFence(t.Context(), begin(t, pool, pgx.ReadCommitted), "job 1 report", 2); err != nil {
		t.Errorf("the same fence again: %v", err)
	}
}

// If an old snapshot cannot see the newest fence, AcceptFence returns an error.
func TestAcceptFence_OldSnapshotIsRetryable(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		pool := pawltest.DB(t)
		late := begin(t, pool, level)
		if _, err := late.Exec(t.Context(), "select from pawl.fence"); err != nil {
			t.Fatal(err)
		}
		newer := begin(t, pool, level)
		if err := lock.AcceptFence(t.Context(), newer, "r", 2); err != nil {
			t.Fatal(err)
		}
		commit(t, newer)
		if err := lock.AcceptFence(t.Context(), late, "r", 1); !pawl.Retryable(err) {
			t.Errorf("%s: %v, want one that is retryable", level, err)
		}
	}
}
