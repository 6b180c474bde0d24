package pawltest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/testbed/patience"
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
		"skip locked":               byHand(pending+" for update skip locked", done, ship),
		"nowait":                    byHand(pending+" for update nowait", done, ship),
		"a key of the inbox":        claimed,
		"an advisory lock":          locked,
		"a lock of the session":     lockedSession,
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

func lockedSession(pool *pgxpool.Pool) worker {
	return func(ctx context.Context) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		var mine bool
		if err := conn.QueryRow(ctx, "select pg_try_advisory_lock(17)").Scan(&mine); err != nil || !mine {
			return err
		}
		err = byHand(pending, done, ship)(pool)(ctx)
		_, free := conn.Exec(ctx, "select pg_advisory_unlock(17)")
		return errors.Join(err, free)
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

// expired moves the leases of orders into the past. It waits for a stalled process that holds the
// row, which must go on then.
func expired(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "update orders set leased_until = clock_timestamp() - interval '1 s' where leased_until is not null"); err != nil {
		t.Fatal(err)
	}
}

// leased returns a worker by hand. It claims the row under a lease and a token, and then runs the
// statements in one transaction.
func leased(pool *pgxpool.Pool, statements ...string) worker {
	return func(ctx context.Context) error {
		token, err := claimLease(ctx, pool)
		if err != nil || token == "" {
			return err
		}
		return underToken(ctx, pool, token, statements...)
	}
}

// claimLease returns the token of the claim, or "" if nothing is due.
func claimLease(ctx context.Context, pool *pgxpool.Pool) (token string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "update orders set status = 'processing', leased_until = clock_timestamp() + interval '1 hour', token = gen_random_uuid()"+
			" where id = 17 and (status = 'pending' or status = 'processing' and leased_until < clock_timestamp()) returning token::text").Scan(&token)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return token, err
}

// underToken runs statements in one transaction. $1 is the token. If the first changes no row, the
// lease was lost.
func underToken(ctx context.Context, pool *pgxpool.Pool, token string, statements ...string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for i, statement := range statements {
			var args []any
			if strings.Contains(statement, "$1") {
				args = append(args, token)
			}
			tag, err := tx.Exec(ctx, statement, args...)
			if err == nil && i == 0 && tag.RowsAffected() == 0 {
				err = errors.New("the lease was lost")
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

const leases = shipping + "alter table orders add leased_until timestamptz, add token uuid, add label text;"

// A worker whose claim is a lease of its own table is taken over: Make moves the lease. The write
// that completes the work must check the token of the claim.
func TestCrashWork_Leases(t *testing.T) {
	t.Parallel()
	const (
		fenced   = "update orders set status = 'completed' where id = 17 and token = $1::uuid"
		unfenced = "update orders set status = 'completed' where id = 17"
		label    = ", leased_until = null, label = gen_random_uuid()::text where"
	)
	for name, c := range map[string]struct {
		statements []string
		want       []string // of what is said, none if it passes
	}{
		"with a fence":            {[]string{fenced, ship}, nil},
		"with a fence, in one":    {[]string{strings.Replace(fenced, " where", label, 1)}, nil},
		"without a fence":         {[]string{unfenced, ship}, []string{`stall before "begin": table shipments has 2 rows; an undisturbed run leaves 1`, "check the claim's token"}},
		"without a fence, in one": {[]string{strings.Replace(unfenced, " where", label, 1)}, []string{`stall before "begin": another process completed the work, and then this one changed orders.label`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pawltest.WorkTest{Schema: []string{leases}, Make: func(pool *pgxpool.Pool) worker {
				expired(t, pool)
				return leased(pool, c.statements...)
			}}
			if said := judged(t, func(tb testing.TB) { pawltest.Twice(tb, p) }); said != "" {
				t.Errorf("twice said %q", said)
			}
			said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) })
			if c.want == nil && said != "" || strings.Contains(said, "death") {
				t.Errorf("said %q", said)
			}
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("said %q, want %q", said, want)
				}
			}
		})
	}
}

// If Make does not move the lease, the run after a death does nothing. The test says so first.
func TestCrashWork_ALeaseThatIsNotMovedIsNamed(t *testing.T) {
	t.Parallel()
	p := pawltest.WorkTest{Schema: []string{leases}, Make: func(pool *pgxpool.Pool) worker {
		return leased(pool, "update orders set status = 'completed' where id = 17 and token = $1::uuid", ship)
	}}
	said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) })
	hint, lost := strings.Index(said, "the run after it changed nothing: if your worker has a lease, move it into the past in Make"), strings.Index(said, "table shipments has 0 rows")
	if hint < 0 || lost < hint {
		t.Errorf("said %q", said)
	}
}

// In a stalled process nothing goes on: a heartbeat does not renew the lease that Make moves.
func TestCrashWork_TheHeartbeatStallsToo(t *testing.T) {
	t.Parallel()
	p := pawltest.WorkTest{Schema: []string{leases}, Make: func(pool *pgxpool.Pool) worker {
		expired(t, pool)
		return func(ctx context.Context) error {
			token, err := claimLease(ctx, pool)
			if err != nil || token == "" {
				return err
			}
			var beats sync.WaitGroup
			defer beats.Wait()
			beating, stop := context.WithCancel(ctx)
			defer stop()
			beats.Go(func() {
				for beating.Err() == nil {
					_, _ = pool.Exec(beating, "update orders set leased_until = clock_timestamp() + interval '1 hour' where status = 'processing' and token = $1::uuid", token)
				}
			})
			return underToken(ctx, pool, token, "update orders set status = 'completed' where id = 17", ship)
		}
	}}
	said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) })
	if !strings.Contains(said, "stall before") || !strings.Contains(said, "table shipments has 2 rows") || strings.Contains(said, "death") {
		t.Errorf("said %q", said)
	}
}

// A heartbeat that the server is executing at the stall ends before Make moves the lease.
func TestCrashWork_AHeartbeatUnderWayEndsFirst(t *testing.T) {
	t.Parallel()
	p := pawltest.WorkTest{Schema: []string{leases}, Make: func(pool *pgxpool.Pool) worker {
		url := pool.Config().ConnString()
		expired(t, pool)
		// A heartbeat that is still under way renews the lease now.
		if err := sleeping(t.Context(), url, func(sleeps bool) bool { return !sleeps }); err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error {
			token, err := claimLease(ctx, pool)
			if err != nil || token == "" {
				return err
			}
			beaten := make(chan struct{})
			defer func() { <-beaten }()
			go func() {
				defer close(beaten)
				_, _ = pool.Exec(ctx, "with slowly as materialized (select pg_sleep(0.3)) update orders set leased_until = clock_timestamp() + interval '1 hour'"+
					" from slowly where status = 'processing' and token = $1::uuid", token)
			}()
			if err := sleeping(ctx, url, func(sleeps bool) bool { return sleeps || isClosed(beaten) }); err != nil {
				return err
			}
			return underToken(ctx, pool, token, "update orders set status = 'completed' where id = 17", ship)
		}
	}}
	said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) })
	if !strings.Contains(said, `stall before "begin": table shipments has 2 rows`) || strings.Contains(said, "death") {
		t.Errorf("said %q", said)
	}
}

// sleeping looks on a connection of its own whether the server executes a pg_sleep, until ok.
func sleeping(ctx context.Context, url string, ok func(sleeps bool) bool) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	failed := patience.Poll(ctx, func() bool {
		var sleeps bool
		err = conn.QueryRow(ctx, "select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')").Scan(&sleeps)
		return err != nil || ok(sleeps)
	})
	return errors.Join(err, failed)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
