package txn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/pawltest"
)

const (
	failing = "do $$ begin raise object_in_use; end $$"
	durable = "rollback; begin; insert into mark values (9); commit; begin"
)

// If a handler ends its transaction through the connection, Lend notices, even if the handler
// leaves another transaction behind and aborts it. An error in the lent transaction is not mistaken
// for that.
func TestLend_AnAbortedTransactionIsKnown(t *testing.T) {
	t.Parallel()
	direct := func(ctx context.Context, tx pgx.Tx, texts ...string) (err error) {
		for _, text := range texts {
			_, err = tx.Conn().PgConn().Exec(ctx, text).ReadAll()
		}
		return err
	}
	exec := func(ctx context.Context, tx pgx.Tx, texts ...string) (err error) {
		for _, text := range texts {
			_, err = tx.Exec(ctx, text)
		}
		return err
	}
	for name, c := range map[string]struct {
		ended bool
		fn    func(context.Context, pgx.Tx) error
	}{
		"it fails":                   {false, func(ctx context.Context, tx pgx.Tx) error { return exec(ctx, tx, failing) }},
		"it fails on the connection": {false, func(ctx context.Context, tx pgx.Tx) error { return direct(ctx, tx, failing) }},
		"it fails, then asks for it": {false, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(exec(ctx, tx, failing), direct(ctx, tx, "select 1"))
		}},
		"it fails after a savepoint's end": {false, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(exec(ctx, tx, "savepoint a", "release a"), direct(ctx, tx, failing))
		}},
		"it fails behind a savepoint":        {false, func(ctx context.Context, tx pgx.Tx) error { return direct(ctx, tx, "savepoint a", failing) }},
		"it fails, and the error is dropped": {false, func(ctx context.Context, tx pgx.Tx) error { _ = direct(ctx, tx, failing); return nil }},
		"a nested one has ended": {false, func(ctx context.Context, tx pgx.Tx) error {
			for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Commit, pgx.Tx.Rollback} {
				nested, err := tx.Begin(ctx)
				if err == nil {
					err = errors.Join(end(nested, ctx), nested.Rollback(ctx))
				}
				if !errors.Is(err, pgx.ErrTxClosed) {
					t.Error(err)
				}
			}
			return direct(ctx, tx, failing)
		}},
		"another one fails":            {true, func(ctx context.Context, tx pgx.Tx) error { return direct(ctx, tx, durable, failing) }},
		"another one fails in silence": {true, func(ctx context.Context, tx pgx.Tx) error { _ = direct(ctx, tx, durable, failing); return nil }},
		"it fails, and another one too": {true, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(exec(ctx, tx, failing), direct(ctx, tx, durable, failing))
		}},
		"another one, in a nested one": {true, func(ctx context.Context, tx pgx.Tx) error {
			nested, err := tx.Begin(ctx)
			return errors.Join(err, direct(ctx, nested, durable, failing))
		}},
		"another one, behind a savepoint": {true, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(exec(ctx, tx, "savepoint a"), direct(ctx, tx, durable, failing))
		}},
		"another one, asked for while rows were open": {true, func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "select 1")
			conn := tx.Conn() // is busy
			rows.Close()
			_, failed := conn.PgConn().Exec(ctx, durable+"; "+failing).ReadAll()
			return errors.Join(err, failed)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t, rows)
			var xact string
			tx, err := txn.Opener{Pool: pool}.Start(t.Context(), "x.begin", "", func(b *pgx.Batch) {
				b.Queue("select pg_current_xact_id()::text").QueryRow(func(row pgx.Row) error { return row.Scan(&xact) })
			})
			if err != nil {
				t.Fatal(err)
			}
			err = tx.Lend(t.Context(), time.Minute, xact, c.fn)
			if err == nil || errors.Is(err, txn.ErrEnded) != c.ended || pawl.MayHaveHappened(err) != c.ended {
				t.Errorf("ended %v: %v", c.ended, err)
			}
			if n := marks(t, pool); n > 0 != c.ended {
				t.Errorf("%d rows are durable", n)
			}
		})
	}
}

// A handler may use the connection itself and succeed.
func TestLend_HandlerMayUseTheConnection(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	var xact string
	tx, err := txn.Opener{Pool: pool}.Start(t.Context(), "x.begin", "", func(b *pgx.Batch) {
		b.Queue("select pg_current_xact_id()::text").QueryRow(func(row pgx.Row) error { return row.Scan(&xact) })
	})
	if err == nil {
		err = tx.Lend(t.Context(), time.Minute, xact, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().CopyFrom(ctx, pgx.Identifier{"mark"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}, {2}}))
			return err
		})
	}
	if err == nil {
		err = tx.Commit(t.Context())
	}
	if err != nil || marks(t, pool) != 2 {
		t.Errorf("%v; %d rows", err, marks(t, pool))
	}
}
