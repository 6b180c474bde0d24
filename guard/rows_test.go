package guard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/pawltest"
)

// orders has no unique constraint on its effects, so that duplicates show.
const orders = `create table orders (id bigint primary key, status text not null default 'pending', result text, claimed_at timestamptz,
  completed_at timestamptz, last_error text, attempt_count int not null default 0, created_at timestamptz not null default now());
create table shipment (id bigint not null);
insert into orders (id) select g from generate_series(1, 5) as g`

var table = guard.Table{Name: "orders", Result: "result", CreatedAt: "created_at"}

func rowsOf(t *testing.T, pool *pgxpool.Pool, table guard.Table) *guard.Rows {
	t.Helper()
	rows, err := guard.New(pool, table)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func ship(id any) guard.Work {
	return func(ctx context.Context, tx pgx.Tx) (any, error) {
		_, err := tx.Exec(ctx, "insert into shipment values ($1)", id)
		return "shipped", err
	}
}

func wantText(t *testing.T, pool *pgxpool.Pool, query, want string) {
	t.Helper()
	var got string
	if err := pool.QueryRow(t.Context(), query).Scan(&got); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

const order1 = "select concat_ws(' ', status, attempt_count, result, last_error, completed_at is not null, (select count(*) from shipment)) from orders where id = 1"

// Of two attempts at once on one row, one completes it and the other gets ErrAlreadyHandled.
func TestOnce_TwiceAtOnce(t *testing.T) {
	t.Parallel()
	const odd = `create schema "Shop"; create table "Shop"."the orders" ("the id" uuid primary key, "State" text not null default 'new',
  claimed_at timestamptz, completed_at timestamptz, last_error text, tries int not null default 0);
insert into "Shop"."the orders" ("the id") values ('6f1c2b5e-0000-4000-8000-000000000001')`
	for name, c := range map[string]struct {
		table guard.Table
		id    any
	}{
		"bigint": {table, int64(1)}, "bigint as text": {table, "1"},
		"uuid": {guard.Table{Name: "Shop.the orders", ID: "the id", Status: "State", AttemptCount: "tries", Pending: "new", Completed: "it's done"},
			"6f1c2b5e-0000-4000-8000-000000000001"},
		"bare": {guard.Table{Name: "bare", CompletedAt: guard.None, ClaimedAt: guard.None, LastError: guard.None, AttemptCount: guard.None}, int64(1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t, orders, odd, "create table bare (id int primary key, status text not null); insert into bare values (1, 'pending')")
			rows := rowsOf(t, pool, c.table)
			var done, handled atomic.Int32
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					err := rows.Once(t.Context(), c.id, ship(int64(1)))
					switch {
					case err == nil:
						done.Add(1)
					case errors.Is(err, pawl.ErrAlreadyHandled):
						handled.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			both.Wait()
			if done.Load() != 1 || handled.Load() != 1 {
				t.Errorf("%d done, %d already handled", done.Load(), handled.Load())
			}
			wantText(t, pool, "select count(*)::text from shipment", "1")
		})
	}
}

// The error tells why the row was not taken, and the row has its result.
func TestOnce_SaysWhy(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, "update orders set status = 'processing' where id = 2; update orders set status = 'error' where id = 3; update orders set status = 'lost' where id = 4")
	rows := rowsOf(t, pool, table)
	if err := rows.Once(t.Context(), 1, ship(1)); err != nil {
		t.Fatal(err)
	}
	wantText(t, pool, order1, "completed 1 shipped t 1")
	for id, want := range map[int]error{1: pawl.ErrAlreadyHandled, 2: pawl.ErrInProgress, 3: pawl.ErrAlreadyHandled, 4: pawl.ErrUnknownState, 17: pawl.ErrNotFound} {
		if err := rows.Once(t.Context(), id, ship(id)); !errors.Is(err, want) {
			t.Errorf("row %d: %v, want %v", id, err, want)
		}
	}
	wantText(t, pool, "select count(*)::text from shipment", "1")
}

// Work that fails leaves only its error in the row, however it fails.
func TestOnce_RecordsTheError(t *testing.T) {
	t.Parallel()
	const strict = "create table strict (n int unique deferrable initially deferred); insert into strict values (1)"
	for name, c := range map[string]struct {
		fail func(context.Context, pgx.Tx) error
		want string
	}{
		"error": {func(context.Context, pgx.Tx) error { return errors.New("no stock \x00") }, "no stock \uFFFD"},
		"final": {func(context.Context, pgx.Tx) error { return pawl.Final(errors.New("no such article")) }, "final: no such article"},
		"panic": {func(context.Context, pgx.Tx) error { panic("boom") }, "panic: boom"},
		"check": {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 'x'::int"); return err }, "final: "},
		"deferred": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into strict values (1)")
			return err
		}, "strict_n_key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t, orders, strict)
			err := rowsOf(t, pool, table).Once(t.Context(), 1, func(ctx context.Context, tx pgx.Tx) (any, error) {
				if _, err := ship(1)(ctx, tx); err != nil {
					return nil, err
				}
				return "shipped", c.fail(ctx, tx)
			})
			if !errors.Is(err, pawl.ErrFailureRecorded) {
				t.Fatalf("got %v, want ErrFailureRecorded", err)
			}
			var got string
			err = pool.QueryRow(t.Context(), order1).Scan(&got)
			if err != nil || !strings.HasPrefix(got, "error 1 ") || !strings.Contains(got, c.want) || !strings.HasSuffix(got, " f 0") {
				t.Errorf("the row is %q, %v", got, err)
			}
		})
	}
}

// The reply to COMMIT is lost, before or after it took effect. The row has one completion and one
// effect, and the caller may acknowledge.
func TestOnce_LostCommitReply(t *testing.T) {
	t.Parallel()
	for _, cut := range []wireproxy.Cut{wireproxy.BeforeSend, wireproxy.BeforeReply} {
		proxy, through := wireproxy.Start(t, pawltest.URL(t, orders))
		pool, err := pgxpool.New(t.Context(), through)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		var once sync.Once
		proxy.OnCommit(func() (c wireproxy.Cut) {
			c = wireproxy.Pass
			once.Do(func() { c = cut })
			return c
		})
		if err := rowsOf(t, pool, table).Once(t.Context(), 1, ship(1)); err != nil && !errors.Is(err, pawl.ErrAlreadyHandled) {
			t.Errorf("cut %v: %v", cut, err)
		}
		var got string
		if err := pool.QueryRow(t.Context(), order1).Scan(&got); err != nil || got != "completed 1 shipped t 1" {
			t.Errorf("cut %v: the row is %q, %v", cut, got, err)
		}
	}
}

// A claim requires a Sweeper. After a takeover the old attempt cannot commit.
func TestClaim_BelongsToOneAttempt(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders)
	rows := rowsOf(t, pool, table)
	if _, err := rows.Claim(t.Context(), 1); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("without a sweeper: %v", err)
	}
	var driven sync.Map
	sweeper, err := rows.Sweeper(guard.SweeperConfig{Every: 10 * time.Millisecond, StuckAfter: time.Minute}, func(_ context.Context, id string) error {
		driven.Store(id, true)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go sweeper.Run(ctx)
	var late *guard.Claimed
	until(t, "the sweeper runs", func() bool {
		late, err = rows.Claim(t.Context(), 1)
		return err == nil
	})
	if _, err := rows.Claim(t.Context(), 1); !errors.Is(err, pawl.ErrInProgress) {
		t.Errorf("claimed twice: %v", err)
	}
	if _, err := pool.Exec(t.Context(), "update orders set claimed_at = claimed_at - interval '1 hour' where id = 1"); err != nil {
		t.Fatal(err)
	}
	until(t, "the row is driven again", func() bool { _, found := driven.Load("1"); return found })
	heir, err := rows.Claim(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Commit(t.Context(), ship(1)); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("the late holder: %v", err)
	}
	if err := late.Fail(t.Context(), errors.New("late")); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("the late holder's failure: %v", err)
	}
	if err := heir.Commit(t.Context(), ship(1)); err != nil {
		t.Error(err)
	}
	wantText(t, pool, order1, "completed 2 shipped t 1")
}

func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	patience.Until(t, what, reached)
}

// Without CreatedAt, a row that was never claimed is dated by a column that only grows. Without
// that it is never retried, because it looks like a new row.
func TestSweeper_DatesRowsByAMonotoneColumn(t *testing.T) {
	t.Parallel()
	for monotone, want := range map[string]bool{"id": true, guard.None: false} {
		pool := pawltest.DB(t, orders, "insert into orders (id) values (9), (10)")
		rows := rowsOf(t, pool, guard.Table{Name: "orders", Monotone: monotone})
		var driven []string
		sweeper, err := rows.Sweeper(guard.SweeperConfig{}, func(ctx context.Context, id string) error {
			driven = append(driven, id)
			return rows.Once(ctx, id, ship(id))
		})
		if err != nil {
			t.Fatal(err)
		}
		pass := func() {
			if _, err := sweeper.Pass(t.Context()); err != nil {
				t.Error(err)
			}
		}
		pass()
		if len(driven) > 0 {
			t.Errorf("%s: drove %v at first sight", monotone, driven)
		}
		if _, err := pool.Exec(t.Context(), "insert into orders (id) values (11)"); err != nil {
			t.Fatal(err)
		}
		sweeper.Age(time.Hour)
		pass()
		slices.Sort(driven)
		if got := strings.Join(driven, " "); got != map[bool]string{true: "1 10 2 3 4 5 9", false: ""}[want] {
			t.Errorf("%s: drove %q; 11 is fresh", monotone, got)
		}
	}
}

// A pass retries each due row once, even if two passes run at once.
func TestSweeper_DrivesWhatIsDue(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, `insert into orders (id, status, attempt_count, last_error, claimed_at, created_at) values
  (11, 'error', 1, 'not now', now() - interval '1 hour', now()), (12, 'error', 1, 'not now', now() + interval '1 hour', now()),
  (13, 'error', 25, 'not now', now() - interval '2 days', now()), (14, 'error', 1, 'final: no', now() - interval '1 hour', now()),
  (15, 'processing', 1, null, now() - interval '1 hour', now()), (16, 'processing', 1, null, now(), now()),
  (17, 'pending', 0, null, null, now() - interval '1 hour'), (18, 'pending', 0, null, now(), now() - interval '1 hour'),
  (19, 'completed', 1, null, now() - interval '1 hour', now() - interval '1 hour')`)
	rows := rowsOf(t, pool, table)
	var driven sync.Map
	sweeper, err := rows.Sweeper(guard.SweeperConfig{}, func(ctx context.Context, id string) error {
		if _, twice := driven.LoadOrStore(id, true); twice {
			t.Errorf("row %s was driven twice", id)
		}
		return rows.Once(ctx, id, ship(id))
	})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if _, err := sweeper.Pass(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := sweeper.Pass(t.Context()); err != nil {
		t.Error(err)
	}
	wantText(t, pool, "select string_agg(id::text, ' ' order by id) from shipment", "11 15 17")
}

// An invalid mapping is refused by New and Sweeper.
func TestNew_RefusesBadTables(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	for _, bad := range []guard.Table{{}, {Name: "t", Pending: "x", Error: "x"}, {Name: "t", ID: guard.None}} {
		if _, err := guard.New(pool, bad); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	rows := rowsOf(t, pool, guard.Table{Name: "t", LastError: guard.None})
	if _, err := rows.Sweeper(guard.SweeperConfig{}, func(context.Context, string) error { return nil }); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("a sweeper without last_error: %v", err)
	}
}

// A lock on the whole table is no conflict about the row, so the error is not ErrInProgress.
func TestOnce_ALockedTableIsNoConflict(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders)
	config := pool.Config()
	config.MaxConns = 1
	one, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	rows := rowsOf(t, one, table)
	// Once prepares its statements here, because preparing waits for locks, too.
	if err := rows.Once(t.Context(), 2, ship(2)); err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "lock table orders in share mode"); err != nil {
			return err
		}
		return rows.Once(t.Context(), 1, ship(1))
	})
	if pawl.CodeOf(err) != "55P03" || !errors.Is(err, contract.ErrTableLocked) || errors.Is(err, pawl.ErrInProgress) {
		t.Errorf("got %v", err)
	}
}
