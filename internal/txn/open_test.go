package txn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/pawltest"
)

func queued(query string) func(*pgx.Batch) { return func(b *pgx.Batch) { b.Queue(query) } }

// open begins a transaction that claims by inserting 1.
func open(t *testing.T, pool *pgxpool.Pool) *txn.Opened {
	t.Helper()
	tx, err := txn.Open(t.Context(), pool, "x.begin", "", time.Minute, queued("insert into mark values (1)"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { txn.Rollback(context.Background(), tx) })
	return tx
}

// guard runs fn, inserts 3 and commits.
func guard(t *testing.T, tx *txn.Opened, fn func(context.Context, pgx.Tx) error) error {
	t.Helper()
	if err := tx.Guard(t.Context(), 20*time.Second, fn); err != nil {
		return err
	}
	return tx.CommitWith(t.Context(), "x.commit", queued("insert into mark values (3)"))
}

// The claim, the user's rows and the record of success commit together.
func TestOpened_CommitsTogether(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	tx := open(t, pool)
	err := guard(t, tx, func(ctx context.Context, tx pgx.Tx) error {
		if got := marks(t, pool); got != 0 {
			t.Errorf("%d rows are visible before COMMIT", got)
		}
		return insert(ctx, tx, 2)
	})
	if err != nil || marks(t, pool) != 3 {
		t.Errorf("%v; %d rows, want 3", err, marks(t, pool))
	}
	if err := tx.Rollback(t.Context()); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("a rollback after the commit: %v", err)
	}
}

// The statement that records success can still fail. Then it is certain that nothing commits.
func TestOpened_RecordingSuccessCanFail(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows, "create table late (n int unique deferrable initially deferred)")
	for name, last := range map[string]string{
		"statement": "select 1/0",
		"commit":    "insert into late values (1), (1)",
	} {
		tx := open(t, pool)
		if err := tx.Guard(t.Context(), time.Minute, func(ctx context.Context, tx pgx.Tx) error { return insert(ctx, tx, 2) }); err != nil {
			t.Fatal(err)
		}
		err := tx.CommitWith(t.Context(), "x.commit", queued(last))
		if code := pawl.CodeOf(err); code != "22012" && code != "23505" || pawl.MayHaveHappened(err) {
			t.Errorf("%s: %v", name, err)
		}
		txn.Rollback(t.Context(), tx)
		if n := marks(t, pool); n != 0 {
			t.Errorf("%s: %d rows", name, n)
		}
	}
}

// If the reply is lost at any point of the last message, the outcome is unknown.
func TestOpened_ALostReplyIsUnknown(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	tx := open(t, pool)
	if err := tx.Guard(t.Context(), time.Minute, func(context.Context, pgx.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	err := tx.CommitWith(t.Context(), "x.commit", queued("select pg_terminate_backend(pg_backend_pid())"))
	if !pawl.MayHaveHappened(err) {
		t.Errorf("%v, want %v", err, pawl.ErrCommitUnknown)
	}
}

// The same holds if statements cannot be prepared, as behind some poolers.
func TestOpened_WithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config := pawltest.DB(t, rows).Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			commit := func(last string) error {
				tx := open(t, pool)
				defer txn.Rollback(t.Context(), tx)
				err := tx.Guard(t.Context(), time.Minute, func(ctx context.Context, tx pgx.Tx) error { return insert(ctx, tx, 2) })
				if err != nil {
					t.Fatal(err)
				}
				return tx.CommitWith(t.Context(), "x.commit", queued(last))
			}
			if err := commit("select 1/0"); pawl.CodeOf(err) != "22012" || pawl.MayHaveHappened(err) {
				t.Errorf("refused: %v", err)
			}
			if err := commit("select pg_terminate_backend(pg_backend_pid())"); !pawl.MayHaveHappened(err) {
				t.Errorf("lost: %v", err)
			}
			if n := marks(t, pool); n != 0 {
				t.Errorf("%d rows of what did not commit", n)
			}
			if err := commit("insert into mark values (3)"); err != nil || marks(t, pool) != 3 {
				t.Errorf("%v; %d rows, want 3", err, marks(t, pool))
			}
		})
	}
}

// A claim that is refused leaves no transaction and no connection behind.
func TestOpened_RefusedClaim(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	for range 2 * pool.Config().MaxConns {
		tx, err := txn.Open(t.Context(), pool, "x.begin", "", time.Minute, queued("select 1/0"))
		if tx != nil || pawl.CodeOf(err) != "22012" {
			t.Fatalf("%v, %v", tx, err)
		}
	}
	// pgxpool closes connections in the background
	patience.Until(t, "no connection is taken", func() bool { return pool.Stat().AcquiredConns() == 0 })
}

// A failed Guard leaves no work behind; the work of earlier ones that succeeded stays.
func TestOpened_GuardsOneAfterAnother(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	tx := open(t, pool)
	boom := errors.New("boom")
	for n, failure := range []error{boom, nil, boom, nil, boom} {
		err := tx.Guard(t.Context(), time.Minute, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(insert(ctx, tx, 10+n), failure)
		})
		if !errors.Is(err, failure) || errors.Is(err, txn.ErrLost) {
			t.Fatalf("%d: %v, want %v", n, err, failure)
		}
	}
	if err := tx.Commit(t.Context()); err != nil || marks(t, pool) != 3 {
		t.Errorf("%v; %d rows, want the claim and the two that succeeded", err, marks(t, pool))
	}
}

// If user code breaks the transaction or ends it, the attempt fails.
func TestOpened_NoticesWhatUserCodeDid(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	sent := func(query string) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Conn().Exec(ctx, query); return err }
	}
	failing := func(query string) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, query)
			return errors.Join(err, errors.New("boom"))
		}
	}
	for name, c := range map[string]struct {
		fn                func(context.Context, pgx.Tx) error
		lost, ended, asks bool // ErrLost; ErrEnded; MayHaveHappened
	}{
		"swallowed":               {func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "select 1/0"); return nil }, false, false, false},
		"commit":                  {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, true, true, false},
		"rollback":                {func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, true, true, false},
		"raw commit":              {sent("commit"), true, true, true},
		"raw rollback":            {sent("rollback"), true, true, true},
		"raw, and begin":          {sent("commit; begin"), true, true, true},
		"commit and chain":        {sent("commit and chain"), true, true, true},
		"rollback and chain":      {sent("rollback and chain"), true, true, true},
		"commit and chain, error": {failing("commit and chain"), true, true, true},
		"commit, begin, error":    {failing("commit; begin"), true, true, true},
		"commit, error":           {failing("commit"), true, true, true},
		"own savepoint, error":    {failing("savepoint pawl"), false, false, false},
		"statement running": {func(ctx context.Context, tx pgx.Tx) error {
			pid := tx.Conn().PgConn().PID()
			go func() { _, _ = tx.Exec(ctx, "select pg_sleep(60)") }()
			return untilTrue(ctx, pool, `select exists (select from pg_stat_activity as a
 where a.pid = $1 and a.state = 'active' and a.query like '%pg_sleep%')`, pid)
		}, true, false, false},
		"raw release": {sent("release savepoint " + txn.SavepointName), true, true, true},
		"rows open":   {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Query(ctx, "select 1"); return err }, true, false, false},
		"killed": {func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return nil
		}, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			tx := open(t, pool)
			err := guard(t, tx, c.fn)
			if err == nil || errors.Is(err, txn.ErrLost) != c.lost || errors.Is(err, txn.ErrEnded) != c.ended || pawl.MayHaveHappened(err) != c.asks {
				t.Errorf("%v: lost %v, ended %v, may have happened %v", err,
					errors.Is(err, txn.ErrLost), errors.Is(err, txn.ErrEnded), pawl.MayHaveHappened(err))
			}
		})
	}
}

// untilTrue waits, inside a transaction that is lent, until a query of another connection is true.
func untilTrue(ctx context.Context, pool *pgxpool.Pool, query string, args ...any) (failed error) {
	return errors.Join(patience.Poll(ctx, func() (is bool) {
		failed = pool.QueryRow(ctx, query, args...).Scan(&is)
		return is || failed != nil
	}), failed)
}

// A goroutine that user code left behind cannot use the transaction any more.
func TestOpened_RefusesLateUse(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	tx := open(t, pool)
	for name, keep := range map[string]func(context.Context, pgx.Tx) (pgx.Tx, error){
		"lent":   func(_ context.Context, tx pgx.Tx) (pgx.Tx, error) { return tx, nil },
		"nested": func(ctx context.Context, tx pgx.Tx) (pgx.Tx, error) { return tx.Begin(ctx) },
		"nested twice": func(ctx context.Context, tx pgx.Tx) (pgx.Tx, error) {
			nested, err := tx.Begin(ctx)
			if err != nil {
				return nil, err
			}
			return nested.Begin(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) { refusesLateUse(t, tx, keep) })
	}
	if err := tx.Commit(t.Context()); err != nil || marks(t, pool) != 1 {
		t.Errorf("%v; %d rows, want the claim", err, marks(t, pool))
	}
}

func refusesLateUse(t *testing.T, tx *txn.Opened, keep func(context.Context, pgx.Tx) (pgx.Tx, error)) {
	var kept pgx.Tx
	if err := tx.Guard(t.Context(), time.Minute, func(ctx context.Context, tx pgx.Tx) (err error) { kept, err = keep(ctx, tx); return err }); err != nil {
		t.Fatal(err)
	}
	_, exec := kept.Exec(t.Context(), "insert into mark values (9)")
	_, query := kept.Query(t.Context(), "select 1")
	_, begin := kept.Begin(t.Context())
	_, prepare := kept.Prepare(t.Context(), "late", "select 1")
	_, copied := kept.CopyFrom(t.Context(), pgx.Identifier{"mark"}, []string{"n"}, pgx.CopyFromRows([][]any{{9}}))
	b := &pgx.Batch{}
	b.Queue("insert into mark values (9)")
	for what, err := range map[string]error{
		"exec": exec, "query": query, "begin": begin, "prepare": prepare, "copy": copied,
		"row": kept.QueryRow(t.Context(), "select 1").Scan(new(int)), "batch": kept.SendBatch(t.Context(), b).Close(),
		"commit": kept.Commit(t.Context()), "rollback": kept.Rollback(t.Context()),
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: %v, want %v", what, err, pgx.ErrTxClosed)
		}
	}
}

// Functions registered with AfterCommit run only after a COMMIT, when the rows are visible. They do
// not run after a rollback to the savepoint or a refused COMMIT. AfterCommit returns false for a
// transaction that no handler was lent.
func TestAfterCommit_FollowsTheCommit(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	heard := 0
	note := func(db pawl.DB) {
		if db != pawl.DB(pool) || marks(t, pool) == 0 {
			t.Errorf("told with %v, %d rows", db, marks(t, pool))
		}
		heard++
	}
	for name, c := range map[string]struct {
		fail error
		last string
		want int
	}{
		"commit":   {nil, "insert into mark values (3)", 1},
		"rollback": {errors.New("the handler failed"), "insert into mark values (3)", 0},
		"refusal":  {nil, "select 1 / 0", 0},
	} {
		heard = 0
		tx := open(t, pool)
		_ = tx.Guard(t.Context(), 20*time.Second, func(_ context.Context, tx pgx.Tx) error {
			if !txn.AfterCommit(tx, note) {
				t.Error("a lent transaction is not known")
			}
			return c.fail
		})
		_ = tx.CommitWith(t.Context(), "x.commit", queued(c.last))
		txn.Rollback(t.Context(), tx)
		if heard != c.want {
			t.Errorf("%s: told %d times, want %d", name, heard, c.want)
		}
	}
	own, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Rollback(t.Context(), own)
	if txn.AfterCommit(own, note) || txn.AfterCommit(pool, note) {
		t.Error("AfterCommit accepted a transaction that no handler was lent")
	}
}

// A session setting that a handler changes does not reach the next handler, because the connection
// is replaced. Settings local to the transaction cost no connection.
func TestOpened_ReplacesAConnectionWhoseSettingsChanged(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	backend := func(query string) (pid uint32) {
		tx := open(t, pool)
		err := guard(t, tx, func(ctx context.Context, tx pgx.Tx) error {
			pid = tx.Conn().PgConn().PID()
			_, err := tx.Exec(ctx, query)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	alive := func(pid uint32) bool {
		for _, c := range pool.AcquireAllIdle(t.Context()) {
			found := c.Conn().PgConn().PID() == pid
			c.Release()
			if found {
				return true
			}
		}
		return false
	}
	for query, kept := range map[string]bool{
		"set default_transaction_read_only = on": false,
		// the server reports it
		"select set_config('default_transaction_read_only', 'on', false)": false,
		"-- a comment\n  SET SESSION statement_timeout = '1h'":            false,
		"set role none":                                       false,
		"set lock_timeout = '9s'":                             false,
		"reset all":                                           false,
		"set local statement_timeout = '1min'":                true,
		"set constraints all deferred":                        true,
		"select set_config('statement_timeout', '60s', true)": true,
		"update mark set n = n":                               true,
	} {
		if pid := backend(query); alive(pid) != kept {
			t.Errorf("%s: the connection was kept: %v, want %v", query, !kept, kept)
		}
	}
}

// Once COMMIT is sent, the end of the caller's context does not cut it short (trap T9).
func TestOpened_CommitIsDetachedFromTheCaller(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	tx := open(t, pool)
	if err := tx.Guard(t.Context(), time.Minute, func(context.Context, pgx.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := tx.CommitWith(ctx, "x.commit", func(b *pgx.Batch) {
		cancel()
		b.Queue("select pg_sleep(0.05)")
		b.Queue("insert into mark values (3)")
	})
	if err != nil || marks(t, pool) != 2 {
		t.Errorf("%v; %d rows, want 2", err, marks(t, pool))
	}
}

// A transaction is unbroken unless user code had access to its connection or changed how texts are
// read.
func TestOpened_UnbrokenUnlessTheConnectionWasGiven(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	exec := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into mark values (2)")
		return err
	}
	for name, c := range map[string]struct {
		fn       func(context.Context, pgx.Tx) error
		unbroken bool
	}{
		"nothing":  {func(context.Context, pgx.Tx) error { return nil }, true},
		"Exec":     {exec, true},
		"QueryRow": {func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, "select 1").Scan(new(int)) }, true},
		"Query": {func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "select 1")
			rows.Close()
			return err
		}, true},
		"BeginFunc": {func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return exec(ctx, tx) })
		}, true},
		"Conn": {func(_ context.Context, tx pgx.Tx) error { tx.Conn(); return nil }, false},
		"nested Conn": {func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { tx.Conn(); return nil })
		}, false},
		"Rows.Conn": {func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "select 1")
			if err == nil {
				rows.Conn()
				rows.Close()
			}
			return err
		}, false},
		"SendBatch": {func(ctx context.Context, tx pgx.Tx) error { return tx.SendBatch(ctx, &pgx.Batch{}).Close() }, false},
		"quotes": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "set local standard_conforming_strings = off")
			return err
		}, false},
		"quotes, and back": {func(ctx context.Context, tx pgx.Tx) error {
			for _, text := range []string{"set local standard_conforming_strings = off", `select '\''`, "set local standard_conforming_strings = on"} {
				if _, err := tx.Exec(ctx, text); err != nil {
					return err
				}
			}
			return nil
		}, false},
		"encoding, and back": {func(ctx context.Context, tx pgx.Tx) error {
			for _, text := range []string{"set local client_encoding = GBK", "select 1", "set local client_encoding = UTF8"} {
				if _, err := tx.Exec(ctx, text); err != nil {
					return err
				}
			}
			return nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tx := open(t, pool)
			if err := tx.Guard(t.Context(), 20*time.Second, c.fn); err != nil {
				t.Fatal(err)
			}
			if got := tx.Unbroken(); got != c.unbroken {
				t.Errorf("unbroken: %v", got)
			}
		})
	}
}
