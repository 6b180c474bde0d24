package pawltest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/pawltest"
)

// shipping is a row with a status, and the effect of the work on it.
const shipping = `
create table orders (
  id            bigint primary key,
  status        text not null default 'pending',
  completed_at  timestamptz,
  claimed_at    timestamptz,
  last_error    text,
  attempt_count int not null default 0
);
insert into orders values (17);
create table shipments (order_id bigint not null);
create table processed_messages (message_id text primary key);`

type worker = func(context.Context) error

const ship = "insert into shipments (order_id) values (17)"

func triggered(t *testing.T) func(*pgxpool.Pool) worker {
	return func(pool *pgxpool.Pool) worker {
		rows, err := guard.New(pool, guard.Table{Name: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error {
			return rows.Once(ctx, "17", func(ctx context.Context, tx pgx.Tx) (any, error) {
				_, err := tx.Exec(ctx, ship)
				return nil, err
			})
		}
	}
}

// byHand returns a worker that runs statements in one transaction. If the first changes no row, it
// is done.
func byHand(statements ...string) func(*pgxpool.Pool) worker {
	return func(pool *pgxpool.Pool) worker {
		return func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				for i, statement := range statements {
					tag, err := tx.Exec(ctx, statement)
					if err != nil || i == 0 && tag.RowsAffected() == 0 {
						return err
					}
				}
				return nil
			})
		}
	}
}

// apart is byHand, but each statement commits by itself.
func apart(statements ...string) func(*pgxpool.Pool) worker {
	return func(pool *pgxpool.Pool) worker {
		return func(ctx context.Context) error {
			for i, statement := range statements {
				tag, err := pool.Exec(ctx, statement)
				if err != nil || i == 0 && tag.RowsAffected() == 0 {
					return err
				}
			}
			return nil
		}
	}
}

const (
	pending = "select from orders where id = 17 and status = 'pending'"
	done    = "update orders set status = 'completed' where id = 17 and status = 'pending'"
	mark    = "insert into processed_messages (message_id) values ('m') on conflict do nothing"
)

func TestCrashWork_GoodWorkers(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(*pgxpool.Pool) worker{
		"guard":                     triggered(t),
		"update where pending":      byHand(done, ship),
		"mark and work, one commit": byHand(mark, ship),
		"select for update":         byHand(pending+" for update", ship, done),
		"a key of the inbox":        claimed,
		"an advisory lock":          locked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pawltest.WorkTest{Schema: []string{shipping}, Make: made}
			pawltest.Twice(t, p)
			pawltest.CrashEverywhere(t, p)
		})
	}
}

func claimed(pool *pgxpool.Pool) worker {
	return func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			claim, err := inbox.Take(ctx, tx, pawl.Intent{Scope: "shipping", Key: "17", Fingerprint: pawl.FingerprintOf(nil)})
			if err != nil || !claim.Fresh {
				return err
			}
			_, err = tx.Exec(ctx, ship)
			return err
		})
	}
}

func locked(pool *pgxpool.Pool) worker {
	return func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(17)"); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, pending)
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			if _, err = tx.Exec(ctx, done); err == nil {
				_, err = tx.Exec(ctx, ship)
			}
			return err
		})
	}
}

// Two runs at once meet, so a worker that reads and then acts is found each time.
func TestCrashWork_SelectThenActIsFound(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(*pgxpool.Pool) worker{
		"in a transaction":   byHand(pending, ship, done),
		"each by itself":     apart(pending, done, ship),
		"a row lock, let go": apart(pending+" for update", ship, done),
		"the mark is known":  byHand("select where not exists (select from processed_messages)", ship, mark),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := judged(t, func(tb testing.TB) { pawltest.Twice(tb, pawltest.WorkTest{Schema: []string{shipping}, Make: made}) })
			if !strings.Contains(said, "twice at once: table shipments has 2 rows; an undisturbed run leaves 1") {
				t.Errorf("said %q", said)
			}
		})
	}
}

func TestCrashWork_TwoCommitsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(*pgxpool.Pool) worker
		want string
	}{
		"mark first":     {apart(mark, ship), "table shipments has 0 rows; an undisturbed run leaves 1"},
		"status first":   {apart(done, ship), "table shipments has 0 rows; an undisturbed run leaves 1"},
		"work first":     {apart(pending, ship, done), "table shipments has 2 rows; an undisturbed run leaves 1"},
		"nothing at all": {apart("select 1"), "changed no table and enqueued nothing, so nothing is tested"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := judged(t, func(tb testing.TB) {
				pawltest.CrashEverywhere(tb, pawltest.WorkTest{Schema: []string{shipping}, Make: c.make})
			})
			if !strings.Contains(said, c.want) {
				t.Errorf("said %q", said)
			}
		})
	}
}

// A worker whose claim is a lease of its own table is taken over: Make moves the lease.
func TestCrashWork_LeasesOfYours(t *testing.T) {
	t.Parallel()
	p := pawltest.WorkTest{Schema: []string{shipping}, Ignore: []string{"attempt_count"}, Make: func(pool *pgxpool.Pool) worker {
		_, err := pool.Exec(t.Context(), "update orders set claimed_at = claimed_at - interval '1 day' where status = 'processing'")
		if err != nil {
			return func(context.Context) error { return err }
		}
		return func(ctx context.Context) error {
			tag, err := pool.Exec(ctx, "update orders set status = 'processing', claimed_at = clock_timestamp(), attempt_count = attempt_count + 1"+
				" where status = 'pending' or status = 'processing' and claimed_at < clock_timestamp() - interval '1 hour'")
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			return byHand("update orders set status = 'completed' where status = 'processing'", ship)(pool)(ctx)
		}
	}}
	pawltest.Twice(t, p)
	pawltest.CrashEverywhere(t, p)
}
