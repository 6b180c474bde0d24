package command_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
)

// A COMMIT or ROLLBACK as text is not sent. The command fails and may be retried.
func TestOnce_TextsThatEndTheTransactionAreNotSent(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"insert into orders (body) values ('x'); commit; begin", "/* x */ Commit", "-- x\nrollback", "end"} {
		b := setup(t)
		_, err := b.once("k", "p", func(ctx context.Context, tx pgx.Tx) (order, error) {
			if _, err := place("first")(ctx, tx); err != nil {
				return order{}, err
			}
			_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
			return order{}, err
		})
		if err == nil || !strings.Contains(err.Error(), "was not sent; return nil to commit, or an error to roll back") || pawl.MayHaveHappened(err) {
			t.Errorf("%q: %v", text, err)
		}
		b.wantOrders(0)
		b.wantStatus("failed_retryable 1")
		_, err = b.once("k", "p", place("second"))
		b.must(err)
		b.wantOrders(1)
	}
}

// If a handler's COMMIT bypasses the check of texts, COMMIT itself fails. The command becomes
// unknown, since statements after that COMMIT or a ROLLBACK may be durable.
func TestOnce_CannotCommitWithoutItsKey(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"commit", "insert into orders (body) values ('x'); commit; begin", "commit and chain", "prepare transaction 'x'", "rollback; begin"} {
		for _, then := range []error{nil, errors.New("boom")} {
			b := setup(t)
			_, err := b.once("k", "p", func(ctx context.Context, tx pgx.Tx) (o order, err error) {
				if o, err = place("first")(ctx, tx); err != nil {
					return o, err
				}
				_, err = tx.Conn().PgConn().Exec(ctx, text).ReadAll()
				switch code := pawl.CodeOf(err); {
				case strings.Contains(text, "commit") && code != "2D000", strings.Contains(text, "prepare") && err == nil, strings.Contains(text, "rollback") && err != nil:
					t.Errorf("%q: %v", text, err)
				}
				return o, then
			})
			b.wantError(err, pawl.ErrOutcomeUnknown)
			b.wantOrders(0)
			b.wantStatus("unknown 1")
			_, err = b.once("k", "p", place("second"))
			b.wantError(err, pawl.ErrOutcomeUnknown)
			b.wantOrders(0)
		}
	}
}

// The same through database/sql, whose handler can call Commit itself.
func TestOnceSQL_CannotCommitWithoutItsKey(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, *sql.Tx) error{
		"Commit": func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		"text":   func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, "commit"); return err },
		"several": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into orders (body) values ('x'); commit; begin")
			return err
		},
		"rollback": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "rollback; begin")
			return err
		},
	} {
		for _, ignored := range []bool{false, true} {
			b := setup(t)
			db := stdlib.OpenDBFromPool(b.pool)
			_, err := command.OnceSQL(t.Context(), db, intent("k", "p"), b.options(), func(ctx context.Context, tx *sql.Tx) (o order, err error) {
				if _, err = tx.ExecContext(ctx, "insert into orders (body) values ('first')"); err != nil {
					return o, err
				}
				if err = end(ctx, tx); name != "rollback" && pawl.CodeOf(err) != "2D000" && !strings.Contains(err.Error(), "42601") {
					t.Errorf("%s: %v", name, err)
				}
				if ignored {
					err = nil
				}
				return o, err
			})
			if !errors.Is(err, pawl.ErrOutcomeUnknown) && name != "several" && name != "rollback" {
				t.Errorf("%s: %v", name, err)
			}
			b.wantOrders(0)
			_ = db.Close()
		}
	}
}
