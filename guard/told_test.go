package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/pawltest"
)

// ears record the events of a table.
type ears struct {
	mu      sync.Mutex
	all     []pawl.Event
	givenUp bool // the database did not accept counts within two seconds
}

func (e *ears) hooks() pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, event pawl.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if event.Op == "rollup.add" {
			e.givenUp = true
			return
		}
		e.all = append(e.all, event)
	}}
}

// heard returns the events as sorted lines of kind, op, scope, key and count.
func (e *ears) heard() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for _, event := range e.all {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s x%d", event.Kind, event.Op, event.Scope, event.Key, max(event.Count, 1))))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func (e *ears) want(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := e.heard(); got != strings.Join(want, "\n") {
		t.Errorf("heard\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// run starts a sweeper and returns once it accepts claims. stop stops it.
func run(t *testing.T, rows *guard.Rows, cfg guard.SweeperConfig, drive func(context.Context, string) error, probe int) (first *guard.Claimed, stop func()) {
	t.Helper()
	sweeper, err := rows.Sweeper(cfg, drive)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sweeper.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	until(t, "claims are accepted", func() bool {
		first, err = rows.Claim(t.Context(), probe)
		return err == nil
	})
	return first, stop
}

// rolled returns the names and sums of the table's counts in pawl.rollup.
func rolled(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var got string
	err := pool.QueryRow(t.Context(), `select coalesce(string_agg(r.name || ' ' || r.value, ', ' order by r.name), '')
  from (select u.name, sum(u.value) as value from pawl.rollup as u where u.span = 'minute' and u.scope = 'guard/orders' and u.source = 'consumer' group by u.name) as r`).Scan(&got)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// An attempt whose row was taken back causes one event when it commits or fails late, however
// often. It is counted like those of jobs. The takeover causes an event, too. A claim that has
// ended is not late.
func TestClaim_ALateAttemptIsReported(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders)
	rows := rowsOf(t, pool, table)
	var e ears
	driven := make(chan string, 10)
	late, stop := run(t, rows, guard.SweeperConfig{Every: 10 * time.Millisecond, Hooks: e.hooks()}, func(_ context.Context, id string) error {
		driven <- id
		return nil
	}, 1)
	if _, err := pool.Exec(t.Context(), "update orders set claimed_at = claimed_at - interval '1 hour' where id = 1"); err != nil {
		t.Fatal(err)
	}
	<-driven
	called := 0
	work := func(context.Context, pgx.Tx) (any, error) { called++; return nil, nil }
	err := late.Commit(t.Context(), work)
	if !errors.Is(err, pawl.ErrFenceLost) || !pawl.Swept(err) || !strings.Contains(err.Error(), "raise StuckAfter") || called != 0 {
		t.Errorf("late: %v; %d calls", err, called)
	}
	if err := late.Fail(t.Context(), errors.New("late")); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("late: %v", err)
	}
	heir, err := rows.Claim(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := heir.Commit(t.Context(), work); err != nil || called != 1 {
		t.Errorf("%v; %d calls", err, called)
	}
	failed, err := rows.Claim(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := failed.Fail(t.Context(), pawl.Final(errors.New("no"))); !errors.Is(err, pawl.ErrFailureRecorded) {
		t.Error(err)
	}
	for _, over := range []*guard.Claimed{heir, failed} {
		if err := errors.Join(over.Commit(t.Context(), work), over.Fail(t.Context(), errors.New("late"))); !errors.Is(err, pawl.ErrFenceLost) || called != 1 {
			t.Errorf("a second end: %v; %d calls", err, called)
		}
	}
	two := 2
	taken, err := rows.Claim(t.Context(), &two) // the event names the row, not the pointer
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "update orders set status = 'completed' where id = 2"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := taken.Fail(t.Context(), errors.New("late")); !errors.Is(err, pawl.ErrFenceLost) {
			t.Errorf("late: %v", err)
		}
	}
	stop()
	e.want(t, "stale_takeover guard.sweep orders  x1", "stale_write_refused guard.complete orders 1 x1", "stale_write_refused guard.fail orders 2 x1")
	if got := rolled(t, pool); got != "final_rows 0, stale_takeover 1, stale_write_refused 2" && !e.givenUp {
		t.Errorf("the rollup has %s", got)
	}
}

// If the work itself returns ErrFenceLost of another fence, the guard reports no late attempt.
func TestClaim_AnotherFencesRefusalIsNotLate(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders)
	var e ears
	claimed, stop := run(t, rowsOf(t, pool, table), guard.SweeperConfig{Hooks: e.hooks()}, func(context.Context, string) error { return nil }, 1)
	other := &pawl.Error{Op: "lock.accept", Code: pawl.CodeFenceLost}
	err := claimed.Commit(t.Context(), func(context.Context, pgx.Tx) (any, error) { return nil, other })
	if !errors.Is(err, pawl.ErrFenceLost) || pawl.Swept(err) {
		t.Errorf("%v", err)
	}
	stop()
	e.want(t)
}

// If a drive's own claim is late, one event reports it.
func TestSweeper_ALateDriveIsReportedOnce(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, "update orders set created_at = now() - interval '1 hour' where id = 2")
	rows := rowsOf(t, pool, table)
	var e ears
	claimed, stop := run(t, rows, guard.SweeperConfig{Every: time.Hour, Hooks: e.hooks()}, func(ctx context.Context, id string) error {
		c, err := rows.Claim(ctx, id)
		if err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "update orders set status = 'pending' where id = $1", id); err != nil {
			return err
		}
		return c.Commit(ctx, ship(2))
	}, 1)
	until(t, "the drive is late", func() bool { return e.heard() != "" })
	if err := claimed.Commit(t.Context(), ship(1)); err != nil {
		t.Error(err)
	}
	stop()
	e.want(t, "stale_write_refused guard.complete orders 2 x1")
	wantText(t, pool, "select string_agg(id::text, ' ') from shipment", "1")
}

// A row without attempts left is not driven while it waits for its mark beyond the Limit.
func TestSweeper_DrivesNoUsedUpRowBehindTheLimit(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, "update orders set status = 'processing', attempt_count = 3, claimed_at = now() - interval '1 hour'")
	sweeper, err := rowsOf(t, pool, table).Sweeper(guard.SweeperConfig{MaxAttempts: 3, Limit: 2, Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}, func(_ context.Context, id string) error {
		t.Errorf("row %s is driven", id)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := sweeper.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantText(t, pool, "select count(*)::text from orders where status = 'error' and last_error like 'final: %'", "5")
}

const spentRows = `insert into orders (id, status, attempt_count, last_error, claimed_at) values
  (11, 'error', 3, 'the model is away', now()), (12, 'error', 4, null, now()), (13, 'error', 2, 'again', now()), (14, 'error', 9, 'final: no', now()),
  (15, 'processing', 3, 'before', now() - interval '1 hour'), (16, 'processing', 2, null, now() - interval '1 hour'), (17, 'processing', 3, null, now())`

// Without ClaimedAt, failed rows are retried until their attempts are used up.
func TestSweeper_WithoutATimeOfClaims(t *testing.T) {
	t.Parallel()
	bare := table
	bare.ClaimedAt = guard.None
	pool := pawltest.DB(t, orders, `insert into orders (id, status, attempt_count, last_error) values (11, 'error', 2, 'again'), (12, 'error', 3, 'the model is away')`)
	var e ears
	var driven []string
	sweeper, err := rowsOf(t, pool, bare).Sweeper(guard.SweeperConfig{MaxAttempts: 3, Hooks: e.hooks()}, func(_ context.Context, id string) error {
		driven = append(driven, id)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sweeper.Pass(t.Context()); err != nil || !slices.Equal(driven, []string{"11"}) {
		t.Errorf("drove %v: %v", driven, err)
	}
	e.want(t, "failed guard.sweep orders 12 x1")
	wantText(t, pool, "select string_agg(id || ' ' || status, ', ' order by id) from orders where id > 10", "11 pending, 12 error")
}

// A row without attempts left causes one event, is marked, and is never driven.
func TestSweeper_UsedUpRowsAreReportedOnce(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, spentRows)
	var e ears
	for range 3 {
		sweeper, err := rowsOf(t, pool, table).Sweeper(guard.SweeperConfig{MaxAttempts: 3, Wait: time.Hour, Hooks: e.hooks()}, func(_ context.Context, id string) error {
			if id != "16" {
				t.Errorf("row %s is driven", id)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sweeper.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	e.want(t, "failed guard.sweep orders 11 x1", "failed guard.sweep orders 12 x1", "failed guard.sweep orders 15 x1", "stale_takeover guard.sweep orders  x2")
	for _, event := range e.all {
		if event.Key == "11" && (event.Attempt != 3 || event.Err == nil || event.Err.Error() != "final: the model is away") {
			t.Errorf("%+v", event)
		}
	}
	wantText(t, pool, "select string_agg(id || ' ' || last_error, ', ' order by id) from orders where status = 'error' and last_error like 'final: %'",
		"11 final: the model is away, 12 final: , 14 final: no, 15 final: the last attempt died, or took longer than StuckAfter")
	if got := rolled(t, pool); got != "final_rows 4" && !e.givenUp {
		t.Errorf("the rollup has %s", got)
	}
}

// A used-up row that its owner makes pending is driven again, and causes an event again at its end.
func TestSweeper_AnUsedUpRowCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, "delete from orders where id > 1; update orders set status = 'error', attempt_count = 2, last_error = 'no'")
	rows := rowsOf(t, pool, table)
	var e ears
	sweeper, err := rows.Sweeper(guard.SweeperConfig{MaxAttempts: 2, PendingAfter: time.Minute, Hooks: e.hooks()}, func(ctx context.Context, id string) error {
		return rows.Once(ctx, id, func(context.Context, pgx.Tx) (any, error) { return nil, errors.New("no") })
	})
	if err != nil {
		t.Fatal(err)
	}
	pass := func() {
		t.Helper()
		if _, err := sweeper.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	e.want(t, "failed guard.sweep orders 1 x1")
	if _, err := pool.Exec(t.Context(), "update orders set status = 'pending', attempt_count = 1, claimed_at = null, created_at = now() - interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	pass()
	pass()
	e.want(t, "failed guard.sweep orders 1 x1", "retryable guard.sweep orders 1 x1", "failed guard.sweep orders 1 x1")
}

// Each failure of a drive causes an event: a recorded failure, a final one, and an error of drive
// itself. So does a sweep that fails.
func TestSweeper_FailuresAreReported(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, "delete from orders where id > 3; update orders set created_at = now() - interval '1 hour'")
	rows := rowsOf(t, pool, table)
	var e ears
	sweeper, err := rows.Sweeper(guard.SweeperConfig{Every: time.Hour, Hooks: e.hooks()}, func(ctx context.Context, id string) error {
		if id == "3" {
			return errors.New("the queue is away")
		}
		return rows.Once(ctx, id, func(context.Context, pgx.Tx) (any, error) {
			if id == "2" {
				return nil, pawl.Final(errors.New("no such article"))
			}
			return nil, errors.New("not now")
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if driven, err := sweeper.Pass(t.Context()); err != nil || driven != 2 {
		t.Errorf("%d driven, %v", driven, err)
	}
	e.want(t, "retryable guard.sweep orders 1 x1", "failed guard.sweep orders 2 x1", "error guard.sweep orders 3 x1")
	if _, err := pool.Exec(t.Context(), "alter table orders rename column attempt_count to tries"); err != nil {
		t.Fatal(err)
	}
	e.all = nil
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sweeper.Run(ctx) }()
	until(t, "the sweep fails", func() bool { return e.heard() != "" })
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	e.want(t, "error guard.sweep orders  x1")
}

// The mark makes a long error no longer, so that it fits into its column.
func TestSweeper_TheMarkFits(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, "alter table orders alter last_error type varchar(100)", "update orders set status = 'error', attempt_count = 25, last_error = repeat('é', 100) where id = 1")
	sweeper, err := rowsOf(t, pool, table).Sweeper(guard.SweeperConfig{Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}, func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sweeper.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantText(t, pool, "select last_error from orders where id = 1", "final: "+strings.Repeat("é", 93))
}
