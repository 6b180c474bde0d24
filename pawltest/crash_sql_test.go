package pawltest_test

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

var mails = job.Define("mail", job.Defaults[string]{Queue: "mail"})

// invoiceSQL writes rows and enqueues a job in its transaction.
func invoiceSQL(ctx context.Context, tx *sql.Tx, id string) error {
	if _, err := tx.ExecContext(ctx, "insert into invoice values ($1)", id); err != nil {
		return err
	}
	_, err := mails.Enqueue(ctx, pawl.SQLTx(tx), id)
	return err
}

const idInvoices = "create table invoice (id text not null)" // no unique constraint, on purpose

// A handler with a *sql.Tx is tested at its statements, in a consumer and in a worker.
func TestCrashHandler_SQL(t *testing.T) {
	t.Parallel()
	pawltest.CrashEverywhere(t, pawltest.HandlerTest{Schema: []string{idInvoices},
		Handler: consumer.HandleSQL(func(ctx context.Context, tx *sql.Tx, m consumer.Message[[]byte]) error {
			return invoiceSQL(ctx, tx, m.Key)
		})})
	pawltest.CrashEverywhere(t, pawltest.JobTest{Schema: []string{idInvoices}, Jobs: []job.Request{{Value: "i1"}},
		Handler: job.HandleSQL("k", func(ctx context.Context, tx *sql.Tx, t job.Task[string]) error { return invoiceSQL(ctx, tx, t.Value) })})
	pawltest.CrashEverywhere(t, pawltest.JobTest{Schema: []string{idInvoices}, Jobs: []job.Request{{Value: "i1"}, {Value: "i2"}},
		Handler: job.HandleManySQL("k", func(ctx context.Context, tx *sql.Tx, ts []job.Task[string]) error {
			for _, t := range ts {
				if err := invoiceSQL(ctx, tx, t.Value); err != nil {
					return err
				}
			}
			return nil
		})})
}

// A handler that writes through its own *sql.DB is found.
func TestCrashHandler_SQLOutsideIsFound(t *testing.T) {
	t.Parallel()
	p := pawltest.HandlerTest{Schema: []string{idInvoices}, Make: func(pool *pgxpool.Pool) consumer.Handler {
		db := stdlib.OpenDBFromPool(pool)
		return consumer.HandleSQL(func(ctx context.Context, tx *sql.Tx, m consumer.Message[[]byte]) error {
			if _, err := db.ExecContext(ctx, "insert into invoice values ('outside')"); err != nil {
				return err
			}
			return invoiceSQL(ctx, tx, m.Key)
		})
	}}
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "table invoice has 3 rows; an undisturbed run leaves 2") {
		t.Errorf("said %q", said)
	}
}

// A HandlerTest refuses other forms of handlers by name.
func TestCrashHandler_RefusesOtherForms(t *testing.T) {
	t.Parallel()
	p := pawltest.HandlerTest{Schema: []string{idInvoices}, Handler: consumer.Trigger(func(context.Context, consumer.Message[[]byte]) error { return nil })}
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "TriggerHandler") {
		t.Errorf("said %q", said)
	}
}

// A HandleThenTx writes its rows once wherever it dies. Its call may be repeated.
func TestCrashJob_HandleThenTx(t *testing.T) {
	t.Parallel()
	var calls, lives atomic.Int32
	pawltest.CrashEverywhere(t, pawltest.JobTest{Schema: []string{idInvoices}, Jobs: []job.Request{{Value: "i1"}}, Make: func(*pgxpool.Pool) job.Handler {
		lives.Add(1)
		return job.HandleThenTx(job.Define("k", job.Defaults[string]{}), func(_ context.Context, t job.Task[string]) (string, error) {
			calls.Add(1)
			return "receipt of " + t.Value, nil
		}, func(ctx context.Context, tx pgx.Tx, _ job.Task[string], receipt string) error {
			_, err := tx.Exec(ctx, "insert into invoice values ($1)", receipt)
			return err
		})
	}, Check: func(tb testing.TB, pool *pgxpool.Pool) {
		var n int
		if err := pool.QueryRow(tb.Context(), "select count(*) from invoice where id = 'receipt of i1'").Scan(&n); err != nil || n != 1 {
			tb.Errorf("%d rows, %v", n, err)
		}
	}})
	if calls.Load() < lives.Load()/2 {
		t.Errorf("%d calls in %d lives", calls.Load(), lives.Load())
	}
}
