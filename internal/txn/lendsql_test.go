package txn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/pawltest"
)

// openSQL is open for a transaction that can be lent as a *sql.Tx.
func openSQL(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) *txn.Opened {
	t.Helper()
	tx, err := txn.Opener{Pool: pool, SQL: true}.Open(t.Context(), "x.begin", level, time.Minute, queued("insert into mark values (1)"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { txn.Rollback(context.Background(), tx) })
	return tx
}

// guardSQL runs guard in such a transaction, and ends the transaction before it returns.
func guardSQL(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel, fn func(context.Context, pgx.Tx) error) error {
	t.Helper()
	tx := openSQL(t, pool, level)
	defer txn.Rollback(t.Context(), tx)
	return guard(t, tx, fn)
}

type withSQL = func(context.Context, *sql.Tx) error

func lent(fn withSQL) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		return txn.LendSQL(ctx, tx, func(tx *sql.Tx) error { return fn(ctx, tx) })
	}
}

// The claim, the writes through the *sql.Tx and the record of success commit together, in one
// transaction.
func TestLendSQL_IsTheSameTransaction(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	var outer, inner string
	err := guardSQL(t, pool, "", func(ctx context.Context, tx pgx.Tx) error {
		const who = "select pg_backend_pid() || ' ' || pg_current_xact_id()"
		if err := tx.QueryRow(ctx, who).Scan(&outer); err != nil {
			return err
		}
		return txn.LendSQL(ctx, tx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "insert into mark values ($1)", 2); err != nil {
				return err
			}
			if got := marks(t, pool); got != 0 {
				t.Errorf("%d rows are visible before COMMIT", got)
			}
			return tx.QueryRowContext(ctx, who).Scan(&inner)
		})
	})
	if err != nil || marks(t, pool) != 3 || outer != inner || outer == "" {
		t.Errorf("%v; %d rows, want 3; %q and %q", err, marks(t, pool), outer, inner)
	}
}

// A nested transaction can be lent too, and rolling it back undoes only its own work. The function
// must not end it either.
func TestLendSQL_OfANestedTransaction(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	write := func(ctx context.Context, tx pgx.Tx, end withSQL) error {
		nested, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		err = txn.LendSQL(ctx, nested, func(x *sql.Tx) error {
			if _, err := x.ExecContext(ctx, "insert into mark values (9)"); err != nil {
				return err
			}
			return end(ctx, x)
		})
		return errors.Join(err, nested.Rollback(ctx), insert(ctx, tx, 2))
	}
	err := guardSQL(t, pool, "", func(ctx context.Context, tx pgx.Tx) error {
		return write(ctx, tx, func(context.Context, *sql.Tx) error { return nil })
	})
	if err != nil || marks(t, pool) != 3 {
		t.Errorf("%v; %d rows, want those of the claim, of the handler and of CommitWith", err, marks(t, pool))
	}
	err = guardSQL(t, pool, "", func(ctx context.Context, tx pgx.Tx) error {
		_ = write(ctx, tx, func(_ context.Context, x *sql.Tx) error { _ = x.Commit(); return nil })
		return nil
	})
	if !errors.Is(err, txn.ErrEnded) || marks(t, pool) != 3 {
		t.Errorf("%v; %d rows", err, marks(t, pool))
	}
}

// A transaction that was opened without SQL cannot be lent as a *sql.Tx; the error says so.
func TestLendSQL_NeedsTheDriver(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	tx := open(t, pool)
	err := guard(t, tx, lent(func(context.Context, *sql.Tx) error { t.Error("called"); return nil }))
	if err == nil || marks(t, pool) != 0 {
		t.Errorf("%v; %d rows", err, marks(t, pool))
	}
}

// The function must not end the transaction: such a call sends nothing, and the attempt fails. If
// the function ends the transaction by method or by text, exits, panics, swallows an error or
// overruns, nothing commits.
func TestLendSQL_NoticesWhatUserCodeDid(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	exec := func(ctx context.Context, tx *sql.Tx, query string) error {
		_, err := tx.ExecContext(ctx, query)
		return err
	}
	for name, c := range map[string]struct {
		fn   withSQL
		want string // in the error
		ends bool   // it is ErrEnded
	}{
		"Commit":          {func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }, "ended the transaction", true},
		"Commit, ignored": {func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return nil }, "ended the transaction", true},
		"Rollback":        {func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }, "ended the transaction", true},
		"Rollback, then a statement": {func(ctx context.Context, tx *sql.Tx) error {
			_ = tx.Rollback()
			return exec(ctx, tx, "insert into mark values (9)")
		}, "already been committed or rolled back", false},
		"commit as text": {func(ctx context.Context, tx *sql.Tx) error { return exec(ctx, tx, "rollback") }, "ended the transaction", true},
		"a swallowed error": {func(ctx context.Context, tx *sql.Tx) error {
			_ = exec(ctx, tx, "select 1/0")
			return nil
		}, "25P02", false},
		"a swallowed error of rows": {func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.QueryContext(ctx, "select 1 / (g - 900) from generate_series(1, 1000) as g")
			return err // the rows are left open; their error comes after the rows that were read
		}, "25P02", false},
		"a panic": {func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.QueryContext(ctx, "select g from generate_series(1, 1000) as g")
			panic("panic")
		}, "panic", false},
		"an exit": {func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.PrepareContext(ctx, "select 1")
			runtime.Goexit()
			return nil
		}, "goroutine exited", false},
		"a lost connection": {func(ctx context.Context, tx *sql.Tx) error {
			_ = exec(ctx, tx, "select pg_terminate_backend(pg_backend_pid())")
			return exec(ctx, tx, "insert into mark values (9)")
		}, "lost", false},
		"an error": {func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(exec(ctx, tx, "insert into mark values (9)"), errors.New("boom"))
		}, "boom", false},
	} {
		err := guardSQL(t, pool, "", lent(c.fn))
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, txn.ErrEnded) != c.ends {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := marks(t, pool); got != 0 {
		t.Errorf("%d rows stayed", got)
	}
}

// If a function returns while a statement runs in its goroutine, the transaction is lost and the
// statement is ended.
func TestLendSQL_ReturnsWhileAStatementRuns(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	for name, start := range map[string]func(context.Context, *sql.Tx, chan<- struct{}){
		"a statement": func(ctx context.Context, tx *sql.Tx, ended chan<- struct{}) {
			_, _ = tx.ExecContext(ctx, "select pg_sleep(86400)")
			close(ended)
		},
		"a prepared statement": func(ctx context.Context, tx *sql.Tx, ended chan<- struct{}) {
			if statement, err := tx.PrepareContext(ctx, "select pg_sleep(86400)"); err == nil {
				_, _ = statement.ExecContext(ctx)
			}
			close(ended)
		},
		"a prepared query": func(ctx context.Context, tx *sql.Tx, ended chan<- struct{}) {
			if statement, err := tx.PrepareContext(ctx, "select pg_sleep(86400)"); err == nil {
				_, _ = statement.QueryContext(ctx)
			}
			close(ended)
		},
		"rows": func(ctx context.Context, tx *sql.Tx, ended chan<- struct{}) {
			rows, err := tx.QueryContext(ctx, "select repeat('x', 100000), case g when 1 then '' else pg_sleep(86400)::text end from generate_series(1, 2) as g")
			for err == nil && rows.Next() {
				var a, b string
				_ = rows.Scan(&a, &b)
			}
			close(ended)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			err := guardSQL(t, pool, "", lent(func(ctx context.Context, tx *sql.Tx) error {
				var pid int
				if err := tx.QueryRowContext(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
					return err
				}
				go start(context.WithoutCancel(t.Context()), tx, ended)
				return untilTrue(t.Context(), pool, fmt.Sprintf("select exists (select from pg_stat_activity where pid = %d and wait_event = 'PgSleep')", pid))
			}))
			if !errors.Is(err, txn.ErrLost) {
				t.Error(err)
			}
			<-ended
		})
	}
	if got := marks(t, pool); got != 0 {
		t.Errorf("%d rows stayed", got)
	}
}

// A *sql.Tx, its statements and rows are useless after the function returned. They reach neither
// this transaction nor the next one on the connection.
func TestLendSQL_RefusesLateUse(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	var kept *sql.Tx
	var statement *sql.Stmt
	var open *sql.Rows
	tx := openSQL(t, pool, "")
	late := func(when string) {
		t.Helper()
		_, one := kept.ExecContext(t.Context(), "insert into mark values (9)")
		_, two := statement.ExecContext(t.Context(), 9)
		_, three := kept.PrepareContext(t.Context(), "select 1")
		if one == nil || two == nil || three == nil || kept.Commit() == nil || open.Next() {
			t.Errorf("%s: %v, %v, %v", when, one, two, three)
		}
		_ = statement.Close()
	}
	err := tx.Guard(t.Context(), time.Minute, func(ctx context.Context, tx pgx.Tx) error {
		err := txn.LendSQL(ctx, tx, func(x *sql.Tx) (err error) {
			kept = x
			if txn.Beneath(x) == nil {
				t.Error("a lent transaction is not known")
			}
			if statement, err = x.PrepareContext(ctx, "insert into mark values ($1)"); err != nil {
				return err
			}
			open, err = x.QueryContext(ctx, "select g from generate_series(1, 10000) as g")
			return err
		})
		late("after the function")
		if txn.Beneath(kept) != nil {
			t.Error("a *sql.Tx is still known")
		}
		return errors.Join(err, insert(ctx, tx, 2)) // middleware goes on with the transaction
	})
	if err != nil {
		t.Fatal(err)
	}
	late("after the handler")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	late("after the commit")
	if got := marks(t, pool); got != 2 {
		t.Errorf("%d rows, want those of the claim and of the middleware", got)
	}
}

// Prepared statements that a function leaves open are closed with its *sql.Tx, in an aborted
// transaction too, and goroutines end.
func TestLendSQL_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	config := pawltest.DB(t, rows).Config()
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for n := range 20 {
		err := guardSQL(t, pool, "", lent(func(ctx context.Context, tx *sql.Tx) error {
			statement, err := tx.PrepareContext(ctx, "insert into mark values ($1 + 17)")
			if err != nil {
				return err
			}
			if _, err = statement.ExecContext(ctx, 2); err == nil && n%2 == 0 {
				_, err = tx.ExecContext(ctx, "select 1/0")
			}
			return err
		}))
		if (err != nil) != (n%2 == 0) || errors.Is(err, txn.ErrLost) {
			t.Fatal(err)
		}
	}
	var left int
	if err := pool.QueryRow(t.Context(), "select count(*) from pg_prepared_statements where statement like '%+ 17)'").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d prepared statements are left (%v)", left, err)
	}
	if got := marks(t, pool); got != 30 {
		t.Errorf("%d rows, want 30", got)
	}
}

// While rows are open, the next statement cannot use the connection; the error says what to do.
func TestLendSQL_OpenRows(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	err := guardSQL(t, pool, "", lent(func(ctx context.Context, tx *sql.Tx) error {
		open, err := tx.QueryContext(ctx, "select g from generate_series(1, 10000) as g")
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "insert into mark values (2)")
		if err == nil || !strings.Contains(err.Error(), "close them") {
			t.Errorf("%v", err)
		}
		if err := open.Close(); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "insert into mark values (2)")
		return err
	}))
	if err != nil || marks(t, pool) != 3 {
		t.Errorf("%v; %d rows, want 3", err, marks(t, pool))
	}
}

// A lent *sql.Tx is recognised as its transaction: AfterCommit and Same accept it.
func TestLendSQL_IsKnownByItsHandle(t *testing.T) {
	t.Parallel()
	config := pawltest.DB(t, rows).Config()
	var sent statements
	config.ConnConfig.Tracer = &sent
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	heard := 0
	err = guardSQL(t, pool, "", func(ctx context.Context, tx pgx.Tx) error {
		return txn.LendSQL(ctx, tx, func(x *sql.Tx) error {
			if !txn.AfterCommit(pawl.SQLTx(x), func(pawl.DB) { heard++ }) || !txn.AfterCommit(pawl.SQL(x), func(pawl.DB) { heard++ }) {
				t.Error("its end is not known")
			}
			if !txn.Same(tx, pawl.SQLTx(x)) {
				t.Error("it is not the same")
			}
			var answer int // Pawl's own calls go through it too, and do not ask which driver it has
			if err := pawl.SQLTx(x).QueryRow(ctx, "select 1").Scan(&answer); err != nil {
				return err
			}
			return nil
		})
	})
	if err != nil || heard != 2 {
		t.Errorf("%v; told %d times", err, heard)
	}
	for _, text := range sent {
		if strings.Contains(text, "pawl_driver") {
			t.Errorf("the driver was asked what it is: %s", text)
		}
	}
}

// statements records the statements that were sent, in order.
type statements []string

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	*s = append(*s, q.SQL)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// When the context ends, the running statement ends and the failure is the overrun. database/sql
// does not roll back by itself.
func TestLendSQL_Overruns(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	tx := openSQL(t, pool, "")
	err := tx.Guard(t.Context(), 100*time.Millisecond, lent(func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "select pg_sleep(86400)")
		return err
	}))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	tx = openSQL(t, pool, "")
	err = tx.Guard(t.Context(), time.Minute, func(ctx context.Context, tx pgx.Tx) error {
		ctx, cancel := context.WithCancel(ctx)
		return txn.LendSQL(ctx, tx, func(tx *sql.Tx) error {
			cancel()
			var err error
			patience.Watch(20*time.Millisecond, func() { // time enough for database/sql to notice
				_, late := tx.ExecContext(context.WithoutCancel(ctx), "insert into mark values (2)")
				err = errors.Join(err, late)
			})
			return err
		})
	})
	if err != nil {
		t.Errorf("%v", err)
	}
}

// Above READ COMMITTED, a lost race is reported as one through database/sql too.
func TestLendSQL_LosesRaces(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows, "insert into mark values (0)")
	err := guardSQL(t, pool, pgx.RepeatableRead, lent(func(ctx context.Context, tx *sql.Tx) error {
		if _, err := pool.Exec(ctx, "update mark set n = 7 where n = 0"); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "update mark set n = 8 where n = 0")
		return err
	}))
	if !txn.LostRace(err) {
		t.Errorf("%v", err)
	}
}

// If a function changes a setting of the session, the connection is closed. If the setting was
// local, the connection is kept.
func TestLendSQL_ReplacesAConnectionWhoseSettingsChanged(t *testing.T) {
	t.Parallel()
	config := pawltest.DB(t, rows).Config()
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	pid := func() (pid int) {
		if err := pool.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	for query, kept := range map[string]bool{"set lock_timeout = '9s'": false, "set local lock_timeout = '9s'": true} {
		before := pid()
		err := guardSQL(t, pool, "", lent(func(ctx context.Context, tx *sql.Tx) error {
			statement, err := tx.PrepareContext(ctx, query)
			if err == nil {
				_, err = statement.ExecContext(ctx)
			}
			return err
		}))
		if err != nil || (pid() == before) != kept {
			t.Errorf("%s: %v; kept: %v", query, err, pid() == before)
		}
	}
}
