package pawltest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/pawltest"
)

const invoices = "create table invoice (no text); create table line (invoice text)"

// invoice writes three rows in four statements, one of them in a savepoint.
func invoice(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
	if _, err := tx.Exec(ctx, "insert into invoice values ($1)", d.Key); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		var n int
		if err := tx.QueryRow(ctx, "select count(*) from invoice").Scan(&n); err != nil {
			return err
		}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"line"}, []string{"invoice"}, pgx.CopyFromRows([][]any{{d.Key}, {d.Key}}))
		return err
	})
}

// A handler that keeps to its transaction passes, and is tried at every boundary.
func TestProof_GoodHandler(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	p := pawltest.Proof{Schema: []string{invoices}, Handler: func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
		calls.Add(1)
		return invoice(ctx, tx, d)
	}}
	pawltest.Twice(t, p)
	if n := calls.Load(); n != 3 {
		t.Errorf("the handler ran %d times, want 3: once in each database", n)
	}
	calls.Store(0)
	pawltest.CrashEverywhere(t, p)
	if n := calls.Load(); n != 1+7*2+1+1 { // once; seven boundaries before COMMIT is done, twice each; after COMMIT; without a crash
		t.Errorf("the handler ran %d times", n)
	}
}

// A handler that writes through a connection of its own is found out: what it wrote there survives the crash.
func TestProof_OwnConnectionIsFound(t *testing.T) {
	t.Parallel()
	p := pawltest.Proof{Schema: []string{invoices}, Make: func(pool *pgxpool.Pool) pawl.Handler {
		return func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
			if _, err := pool.Exec(ctx, "insert into line values ($1)", d.Key); err != nil {
				return err
			}
			return invoice(ctx, tx, d)
		}
	}}
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "death at boundary 1: the tables have map[invoice:1 line:4]") {
		t.Errorf("said %q", said)
	}
}

// What is called outside is for Check to count.
func TestProof_CallsOutsideAreFound(t *testing.T) {
	t.Parallel()
	var mails atomic.Int32
	p := pawltest.Proof{Schema: []string{invoices},
		Handler: func(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
			mails.Add(1) // nothing can take it back
			return invoice(ctx, tx, d)
		},
		Check: func(tb testing.TB, _ *pgxpool.Pool) {
			if n := mails.Swap(0); n != 1 {
				tb.Errorf("%d mails", n)
			}
		}}
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "2 mails") {
		t.Errorf("said %q", said)
	}
}

// judged runs a proof that must fail, and returns what it said.
func judged(t *testing.T, prove func(testing.TB)) string {
	j := &judge{TB: t}
	prove(j)
	return j.said.String()
}

type judge struct {
	testing.TB
	said strings.Builder
}

func (j *judge) Errorf(format string, args ...any) { fmt.Fprintf(&j.said, format+"\n", args...) }
func (j *judge) Fatalf(format string, args ...any) { j.Errorf(format, args...) }
