package txn_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/pawltest"
)

// A text that would end the lent transaction is refused before it is sent, by all methods. The
// error says what to do, and nothing more can be sent. Nothing commits, even if the handler ignores
// the error.
func TestLent_RefusesTextsThatEndIt(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	const text = "insert into mark values (1); commit; begin"
	for name, send := range map[string]func(context.Context, pgx.Tx) error{
		"Exec": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, text); return err },
		"Exec, simple": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
			return err
		},
		"Query": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Query(ctx, "-- x\n end"); return err },
		"Query, simple": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, text, pgx.QueryExecModeSimpleProtocol)
			return err
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, "/* x */ Abort").Scan() },
		"Prepare":  func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Prepare(ctx, "p", "commit"); return err },
		"SendBatch": func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("insert into mark values (1)")
			b.Queue("prepare transaction 'x'")
			return tx.SendBatch(ctx, b).Close()
		},
		"nested": func(ctx context.Context, tx pgx.Tx) error {
			tx, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "COMMIT PREPARED 'x'")
			return err
		},
		"sql Exec": lent(func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, text); return err }),
		"sql Query": lent(func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.QueryContext(ctx, "rollback and chain")
			return err
		}),
		"sql row":     lent(func(ctx context.Context, tx *sql.Tx) error { return tx.QueryRowContext(ctx, ";rollback").Scan() }),
		"sql Prepare": lent(func(ctx context.Context, tx *sql.Tx) error { _, err := tx.PrepareContext(ctx, "commit"); return err }),
	} {
		for _, ignored := range []bool{false, true} {
			tx := openSQL(t, pool, "")
			err := guard(t, tx, func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "insert into mark values (2)"); err != nil {
					return err
				}
				err := send(ctx, tx)
				if !errors.Is(err, txn.ErrEnded) || !strings.Contains(err.Error(), "was not sent; return nil to commit, or an error to roll back") {
					t.Errorf("%s: %v", name, err)
				}
				if _, late := tx.Exec(ctx, "insert into mark values (3)"); !errors.Is(late, pgx.ErrTxClosed) {
					t.Errorf("%s: afterwards: %v", name, late)
				}
				if ignored {
					return nil
				}
				return err
			})
			if !errors.Is(err, txn.ErrLost) || !errors.Is(err, txn.ErrEnded) {
				t.Errorf("%s: %v", name, err)
			}
			txn.Rollback(t.Context(), tx)
		}
	}
	if n := marks(t, pool); n != 0 {
		t.Errorf("%d rows stayed", n)
	}
}

// PostgreSQL itself refuses COMMIT and ROLLBACK inside a DO block, procedure or function: it runs
// in a transaction block.
func TestLent_ProceduresCannotEndIt(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows, "create procedure ending() language plpgsql as $$ begin insert into mark values (1); commit; end $$",
		"create procedure undoing() language plpgsql as $$ begin insert into mark values (1); rollback; end $$",
		"create function calling() returns void language plpgsql as $$ begin call ending(); end $$",
		"create function dynamic() returns void language plpgsql as $$ begin execute 'commit'; end $$")
	opened := 0
	for text, code := range map[string]string{
		"do $$ begin insert into mark values (1); commit; end $$":   "2D000",
		"do $$ begin insert into mark values (1); rollback; end $$": "2D000",
		"call ending()":                               "2D000",
		"call undoing()":                              "2D000",
		"select calling()":                            "2D000",
		"do $$ begin call ending(); end $$":           "2D000",
		"select dynamic()":                            "0A000",
		"do $$ begin execute 'rollback'; end $$":      "0A000",
		"do $$ begin execute 'commit; begin'; end $$": "0A000",
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			opened++
			tx := open(t, pool)
			err := guard(t, tx, func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, text, mode); return err })
			if string(pawl.CodeOf(err)) != code {
				t.Errorf("%s: %v", text, err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	if n := marks(t, pool); n != opened {
		t.Errorf("%d rows, want the %d from before the texts", n, opened)
	}
}
