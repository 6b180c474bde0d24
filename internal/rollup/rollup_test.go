package rollup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/rollup"
	"github.com/pawl-go/pawl/pawltest"
)

type bed struct {
	*testing.T
	pool *pgxpool.Pool
}

func (b bed) exec(statement string) {
	b.Helper()
	if _, err := b.pool.Exec(b.Context(), statement); err != nil {
		b.Fatal(err)
	}
}

// sum returns the total of a name over all hours.
func (b bed) sum(name string) (n int64) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), "select coalesce(sum(r.value), 0) from pawl.rollup as r where r.span = 'hour' and r.name = $1", name).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// Counts of any number of scopes are added once. Events that say nothing about work are not added.
func TestRecorder_Adds(t *testing.T) {
	t.Parallel()
	b := bed{t, pawltest.DB(t)}
	r := rollup.New(b.pool, rollup.Queue)
	for n := range 2500 {
		r.Count(pawl.Event{Kind: pawl.EventSucceeded, Scope: fmt.Sprint("q", n)})
	}
	r.Count(pawl.Event{Kind: pawl.EventSucceeded, Scope: "q1", Count: 10})
	r.Count(pawl.Event{Kind: pawl.EventRetryable})
	r.Count(pawl.Event{Kind: pawl.EventPolled, Scope: "q1"})
	r.Count(pawl.Event{Kind: pawl.EventError, Scope: "q1"})
	for range 2 {
		if err := r.Add(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int64{"succeeded": 2510, "retryable": 1, "polled": 0, "error": 0} {
		if got := b.sum(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// Counts that the database refused are added the next time.
func TestRecorder_KeepsWhatWasRefused(t *testing.T) {
	t.Parallel()
	b := bed{t, pawltest.DB(t)}
	r := rollup.New(b.pool, rollup.Consumer)
	r.Count(pawl.Event{Kind: pawl.EventSucceeded, Scope: "c", Count: 3})
	b.exec("alter table pawl.rollup rename to away")
	if err := r.Add(t.Context(), nil); pawl.CodeOf(err) != "42P01" {
		t.Fatalf("without the table: %v", err)
	}
	b.exec("alter table pawl.away rename to rollup")
	r.Count(pawl.Event{Kind: pawl.EventSucceeded, Scope: "c"})
	if err := r.Add(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := b.sum("succeeded"); got != 4 {
		t.Errorf("%d, want 4", got)
	}
}

// Counts that the database may have added are not added again.
func TestRecorder_CountsNothingTwice(t *testing.T) {
	t.Parallel()
	b := bed{t, pawltest.DB(t)}
	r := rollup.New(b.pool, rollup.Consumer)
	r.Count(pawl.Event{Kind: pawl.EventSucceeded, Scope: "c", Count: 3})
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "lock table pawl.rollup"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.Add(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("while the table is locked: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Count(pawl.Event{Kind: pawl.EventSucceeded, Scope: "c"})
	if err := r.Add(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := b.sum("succeeded"); got != 1 && got != 4 {
		t.Errorf("%d, want 1 or 4", got)
	}
}

// Counts for which there was no connection are added the next time.
func TestRecorder_KeepsWhatFoundNoConnection(t *testing.T) {
	t.Parallel()
	b := bed{t, pawltest.DB(t)}
	c := b.pool.Config()
	c.MaxConns = 1
	small, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	r := rollup.New(small, rollup.Consumer)
	r.Count(pawl.Event{Kind: pawl.EventSucceeded, Scope: "c", Count: 3})
	held, err := small.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Add(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without a connection: %v", err)
	}
	held.Release()
	if err := r.Add(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := b.sum("succeeded"); got != 3 {
		t.Errorf("%d, want 3", got)
	}
}

// Levels are measured once a minute in total, with any number of recorders.
func TestRecorder_MeasuresOnceAMinute(t *testing.T) {
	t.Parallel()
	b := bed{t, pawltest.DB(t)}
	calls := 0
	measure := func(context.Context) (l contract.Rollup, err error) {
		calls++
		l.Add("", "due", int64(calls))
		return l, nil
	}
	for range 6 {
		if err := rollup.New(b.pool, rollup.Queue).Add(t.Context(), measure); err != nil {
			t.Fatal(err)
		}
	}
	var minutes int
	if err := b.pool.QueryRow(t.Context(), "select count(*) from pawl.rollup as r where r.span = 'minute' and r.kind = 'level'").Scan(&minutes); err != nil {
		t.Fatal(err)
	}
	if calls != minutes || calls > 2 {
		t.Errorf("measured %d times in %d minutes", calls, minutes)
	}
	slow := errors.New("slow")
	b.exec("truncate pawl.rollup")
	err := rollup.New(b.pool, rollup.Queue).Add(t.Context(), func(context.Context) (contract.Rollup, error) { return contract.Rollup{}, slow })
	if !errors.Is(err, slow) {
		t.Errorf("a measure that failed: %v", err)
	}
}

// Rejections that could not be stored are stored the next time, once.
func TestRecorder_RecordsRefusals(t *testing.T) {
	t.Parallel()
	b := bed{t, pawltest.DB(t)}
	r := rollup.New(b.pool, rollup.Queue)
	b.exec("alter table pawl.stale_write rename to away")
	for n := range 1200 {
		r.Refused(contract.StaleWrite{Scope: "q", Key: fmt.Sprint(n), Fence: 1, Worker: "w"})
	}
	if err := r.Add(t.Context(), nil); pawl.CodeOf(err) != "42P01" {
		t.Fatalf("without the table: %v", err)
	}
	b.exec("alter table pawl.away rename to stale_write")
	for range 2 {
		if err := r.Add(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := b.pool.QueryRow(t.Context(), "select count(*) from pawl.stale_write").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n != 1000 {
		t.Errorf("%d recorded, want 1000", n)
	}
}
