package txn_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/pawltest"
)

const rows = "create table mark (n int not null)"

func insert(ctx context.Context, tx pgx.Tx, n int) error {
	_, err := tx.Exec(ctx, "insert into mark values ($1)", n)
	return err
}

func begin(t *testing.T, pool *pgxpool.Pool) *txn.Opened {
	t.Helper()
	tx, err := txn.Begin(t.Context(), pool, "x.begin", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { txn.Rollback(context.Background(), tx) })
	return tx
}

func marks(t *testing.T, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "select count(*) from mark").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Work that succeeds stays. Work that fails in any way leaves nothing, and the transaction
// continues with what came before.
func TestGuard_KeepsAllOrNothing(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	for name, c := range map[string]struct {
		fn    func(context.Context, pgx.Tx) error
		words string // of the error; empty: success
	}{
		"success": {func(context.Context, pgx.Tx) error { return nil }, ""},
		"error":   {func(context.Context, pgx.Tx) error { return errors.New("boom") }, "boom"},
		"refused": {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1/0"); return err }, "22012"},
		"panic":   {func(context.Context, pgx.Tx) error { panic("boom") }, "panic: boom, at github.com/pawl-go/pawl/internal/txn_test"},
		"exit":    {func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }, "goroutine exited"},
		"overrun": {func(ctx context.Context, _ pgx.Tx) error { <-ctx.Done(); return ctx.Err() }, "overran its limit of 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, pool)
			if err := insert(t.Context(), tx, 1); err != nil {
				t.Fatal(err)
			}
			limit := time.Minute
			if strings.HasPrefix(c.words, "overran") {
				limit = time.Second
			}
			err := tx.Guard(t.Context(), limit, func(ctx context.Context, tx pgx.Tx) error {
				if err := insert(ctx, tx, 2); err != nil {
					return err
				}
				return c.fn(ctx, tx)
			})
			want := 1
			if c.words == "" {
				want = 2
			}
			if got := marks(t, tx); got != want {
				t.Errorf("%d rows, want %d", got, want)
			}
			switch {
			case c.words == "" && err != nil, c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)):
				t.Errorf("got %v, want %q", err, c.words)
			case errors.Is(err, txn.ErrLost):
				t.Errorf("the transaction counts as lost: %v", err)
			}
		})
	}
}

// If user code breaks the transaction or ends it, the attempt fails.
func TestGuard_NoticesALostTransaction(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	for name, c := range map[string]struct {
		fn          func(context.Context, pgx.Tx) error
		ended, asks bool // ErrEnded; MayHaveHappened
	}{
		"commit":           {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, true, false},
		"rollback":         {func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, true, false},
		"commit as text":   {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "commit"); return err }, true, false},
		"rollback as text": {func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "rollback"); return nil }, true, false},
		"raw commit":       {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Conn().Exec(ctx, "commit"); return err }, true, true},
		"raw rollback":     {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Conn().Exec(ctx, "rollback"); return err }, true, true},
		"raw commit, error": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, "commit")
			return errors.Join(err, errors.New("boom"))
		}, true, true},
		"rows open": {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Query(ctx, "select 1"); return err }, false, false},
		"killed": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, pool)
			err := tx.Guard(t.Context(), 20*time.Second, c.fn)
			if !errors.Is(err, txn.ErrLost) || errors.Is(err, txn.ErrEnded) != c.ended || pawl.MayHaveHappened(err) != c.asks {
				t.Errorf("%v: lost %v, ended %v, may have happened %v", err, errors.Is(err, txn.ErrLost), errors.Is(err, txn.ErrEnded), pawl.MayHaveHappened(err))
			}
			if pawl.Unreachable(err) != c.asks || (name == "killed") != errors.Is(err, pawl.ErrTransactionLost) {
				t.Errorf("unreachable is %v for %v", pawl.Unreachable(err), err)
			}
		})
	}
}

// Only lost races are run again, at most 8 times.
func TestRestart_IsForLostRacesAndBounded(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]int{"40001": 8, "40P01": 8, "55P03": 1, "23505": 1, "P4020": 1, "08007": 1} {
		tries := 0
		err := txn.Restart(t.Context(), func() error {
			tries++
			return pawl.Wrap("x", &pgconn.PgError{Code: code})
		})
		if tries != want || pawl.CodeOf(err) != pawl.Code(code) {
			t.Errorf("%s: %d tries, %v; want %d", code, tries, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tries := 0
	_ = txn.Restart(ended, func() error { tries++; return &pgconn.PgError{Code: "40001"} })
	if tries > 1 {
		t.Errorf("%d tries after the context's end", tries)
	}
}

// A caller's deadline does not cut a COMMIT short.
func TestCommit_IgnoresTheCallersEnd(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	tx := begin(t, pool)
	if err := insert(t.Context(), tx, 1); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := txn.Commit(ended, "x.commit", tx); err != nil {
		t.Fatal(err)
	}
	if marks(t, pool) != 1 {
		t.Error("not committed")
	}
}

// The server ends a transaction that is idle for too long, and releases its locks.
func TestBegin_SilenceIsBounded(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	silent, err := txn.Begin(t.Context(), pool, "x.begin", 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Rollback(context.Background(), silent)
	if _, err := silent.Exec(t.Context(), "lock table mark"); err != nil {
		t.Fatal(err)
	}
	patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := pool.Exec(patient, "lock table mark in access share mode"); err != nil && pawl.CodeOf(err) != "25P01" {
		t.Fatal(err)
	}
	// waits for the lock
	if _, err := pool.Exec(patient, "insert into mark values (1)"); err != nil {
		t.Fatal(err)
	}
	if err := insert(t.Context(), silent, 2); err == nil {
		t.Error("the silent transaction still lives")
	}
}

// After a lost reply, pgx v5.9 to v5.12 calls the statement safe to retry although the server may
// have committed. Commit returns an unknown outcome in both cases. The test runs with the pgx
// version in go.mod.
func TestDriver_ALostReplyIsUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut  wireproxy.Cut
		want int
	}{"committed": {wireproxy.BeforeReply, 1}, "rolled back": {wireproxy.BeforeSend, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pawltest.URL(t, rows)
			proxy, through := wireproxy.Start(t, url)
			pool, direct := poolOf(t, through), poolOf(t, url)
			tx := begin(t, pool)
			if err := insert(t.Context(), tx, 1); err != nil {
				t.Fatal(err)
			}
			proxy.OnCommit(func() wireproxy.Cut { return c.cut })
			err := txn.Commit(t.Context(), "x.commit", tx)
			if !errors.Is(err, pawl.ErrCommitUnknown) || pawl.Retryable(err) {
				t.Errorf("got %v", err)
			}
			t.Logf("the driver calls it safe to retry: %v", pgconn.SafeToRetry(err))
			untilMarks(t, direct, c.want)

			// The same for a statement without parameters, on its own.
			proxy.Aim(func(sent []byte) bool { return strings.Contains(string(sent), "insert into mark values (2)") })
			_, err = pool.Exec(t.Context(), "insert into mark values (2)")
			if err == nil || txn.Refused(err) {
				t.Errorf("an unanswered statement counts as refused: %v", err)
			}
			t.Logf("the driver calls it safe to retry: %v", pgconn.SafeToRetry(err))
			untilMarks(t, direct, 2*c.want)
		})
	}
}

func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// untilMarks waits until the old transaction has ended, and compares the number of rows.
func untilMarks(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), "lock table mark"); err != nil {
		t.Fatal(err)
	}
	if got := marks(t, tx); got != want {
		t.Errorf("%d rows are durable, want %d", got, want)
	}
	txn.Rollback(t.Context(), tx)
}

// The error of a transaction that was lost alone names the settings that end sessions.
func TestBlame_NamesTheSettings(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t, pgtest.Template{Name: "empty"})
	admin, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	database := pgx.Identifier{admin.Config().Database}.Sanitize()
	if _, err := admin.Exec(t.Context(), "alter database "+database+" set idle_session_timeout = '1h'"); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	err = begin(t, pool).Guard(t.Context(), time.Minute, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		return err
	})
	if !errors.Is(err, pawl.ErrTransactionLost) || !strings.Contains(err.Error(), "idle_session_timeout = 3600000ms") {
		t.Errorf("got %v", err)
	}
}

// If the server closed the connection before COMMIT was written, its reason is not read. The error
// names the settings that end sessions while they are idle.
func TestBlame_NamesWhatEndsIdleSessions(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t, pgtest.Template{Name: "empty"})
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	tx := begin(t, pool)
	var pid int
	err = tx.Guard(t.Context(), time.Minute, func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "set local idle_in_transaction_session_timeout = '1ms'")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	patience.Row(t, pool, "the session has ended", fmt.Sprintf("select not exists (select from pg_stat_activity where pid = %d)", pid))
	err = tx.Commit(t.Context())
	if !pawl.MayHaveHappened(err) || !errors.Is(err, txn.ErrAlone) || !strings.Contains(err.Error(), "idle_in_transaction_session_timeout") {
		t.Errorf("got %v", err)
	}
}
