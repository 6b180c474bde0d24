package pawltest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/pawltest"
)

const parcels = `create table parcel (id int primary key, status text not null default 'pending', claimed_at timestamptz, completed_at timestamptz,
  last_error text, attempt_count int not null default 0, created_at timestamptz not null default now());
insert into parcel (id) values (1);
create table shipment (parcel int)`

func triggerTest(handle func(ctx context.Context, pool *pgxpool.Pool, rows *guard.Rows, id string) error) pawltest.TriggerTest {
	return pawltest.TriggerTest{Schema: []string{parcels}, Table: guard.Table{Name: "parcel", CreatedAt: "created_at"},
		Make: func(pool *pgxpool.Pool, rows *guard.Rows) func(context.Context, string) error {
			return func(ctx context.Context, id string) error { return handle(ctx, pool, rows, id) }
		}}
}

func shipParcel(ctx context.Context, tx pgx.Tx) (any, error) {
	_, err := tx.Exec(ctx, "insert into shipment values (1)")
	return nil, err
}

// Both forms of package guard pass.
func TestCrashTrigger_GoodHandlers(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]func(ctx context.Context, pool *pgxpool.Pool, rows *guard.Rows, id string) error{
		"once": func(ctx context.Context, _ *pgxpool.Pool, rows *guard.Rows, id string) error {
			return rows.Once(ctx, id, shipParcel)
		},
		"claim": func(ctx context.Context, _ *pgxpool.Pool, rows *guard.Rows, id string) error {
			c, err := rows.Claim(ctx, id)
			if err != nil {
				return err
			}
			return c.Commit(ctx, shipParcel)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pawltest.Twice(t, triggerTest(handle))
			pawltest.CrashEverywhere(t, triggerTest(handle))
		})
	}
}

// A worker that reads the status and then acts is found: two at once both act, and so does a second
// one if the first dies in between.
func TestCrashTrigger_SelectThenActIsFound(t *testing.T) {
	t.Parallel()
	p := triggerTest(func(ctx context.Context, pool *pgxpool.Pool, _ *guard.Rows, id string) error {
		var status string
		if err := pool.QueryRow(ctx, "select status from parcel where id = $1", id).Scan(&status); err != nil {
			return err
		}
		if status != "pending" {
			return pawl.ErrAlreadyHandled
		}
		if _, err := pool.Exec(ctx, "insert into shipment values (1)"); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, "update parcel set status = 'completed' where id = $1", id)
		return err
	})
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, `death after "insert into shipment values (1)"`) ||
		!strings.Contains(said, "table shipment has 2 rows; an undisturbed run leaves 1") {
		t.Errorf("said %q", said)
	}
}

// The same in one transaction survives each death. Twice at once, or a stall, finds it.
func TestCrashTrigger_SelectThenActInATransactionIsFound(t *testing.T) {
	t.Parallel()
	p := triggerTest(func(ctx context.Context, pool *pgxpool.Pool, _ *guard.Rows, id string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var status string
			if err := tx.QueryRow(ctx, "select status from parcel where id = $1", id).Scan(&status); err != nil {
				return err
			}
			if status != "pending" {
				return pawl.ErrAlreadyHandled
			}
			if _, err := shipParcel(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "update parcel set status = 'completed' where id = $1", id)
			return err
		})
	})
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, `stall before "insert into shipment values (1)"`) ||
		strings.Contains(said, "death") || !strings.Contains(said, "table shipment has 2 rows; an undisturbed run leaves 1") {
		t.Errorf("said %q", said)
	}
}

// A worker that commits without the token of its claim is found by a stall.
func TestCrashTrigger_CommitWithoutTheTokenIsFound(t *testing.T) {
	t.Parallel()
	p := triggerTest(func(ctx context.Context, pool *pgxpool.Pool, rows *guard.Rows, id string) error {
		if _, err := rows.Claim(ctx, id); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := shipParcel(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "update parcel set status = 'completed', completed_at = now() where id = $1", id)
			return err
		})
	})
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "stall before \"begin\"") ||
		strings.Contains(said, "death") || !strings.Contains(said, "table shipment has 2 rows; an undisturbed run leaves 1") {
		t.Errorf("said %q", said)
	}
}

// A handler that completes nothing is told so.
func TestCrashTrigger_ARowThatIsNotCompletedIsFound(t *testing.T) {
	t.Parallel()
	p := triggerTest(func(context.Context, *pgxpool.Pool, *guard.Rows, string) error { return pawl.ErrNotFound })
	if said := judged(t, func(tb testing.TB) { pawltest.Twice(tb, p) }); !strings.Contains(said, "the message was not acknowledged") {
		t.Errorf("said %q", said)
	}
}
