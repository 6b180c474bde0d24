package pawltest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

const invoices = "create table invoice (no text); create table line (invoice text)"

// invoice writes three rows in four statements, one of them in a savepoint.
func invoice(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
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

// A handler that keeps to its transaction passes, and is tested at every point.
func TestCrashHandler_GoodHandler(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	p := pawltest.HandlerTest{Schema: []string{invoices}, Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
		calls.Add(1)
		return invoice(ctx, tx, d)
	})}
	pawltest.Twice(t, p)
	if n := calls.Load(); n != 4 {
		t.Errorf("the handler ran %d times, want 4: once in each database", n)
	}
	calls.Store(0)
	pawltest.CrashEverywhere(t, p)
	// Two undisturbed runs; two calls for each of eleven deaths before the commit (around five
	// statements, before COMMIT); one for each loss after the commit; one run without a death.
	if n := calls.Load(); n != 2+11*2+2+1 {
		t.Errorf("the handler ran %d times", n)
	}
}

// A handler that writes through its own connection is found, because those rows survive the crash.
func TestCrashHandler_OwnConnectionIsFound(t *testing.T) {
	t.Parallel()
	p := pawltest.HandlerTest{Schema: []string{invoices}, Make: func(pool *pgxpool.Pool) consumer.Handler {
		return consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
			if _, err := pool.Exec(ctx, "insert into line values ($1)", d.Key); err != nil {
				return err
			}
			return invoice(ctx, tx, d)
		})
	}}
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "death after \"insert into line values ($1)\" (point 2): table line has 4 rows; an undisturbed run leaves 3") {
		t.Errorf("said %q", said)
	}
}

const accounts = `create table account (no int primary key, balance int not null, touched timestamptz); insert into account values (1, 100), (2, 100);
create table booking (id bigserial primary key, account int, at timestamptz default now(), token uuid default gen_random_uuid(), day text default 'monday')`

// A handler that updates a row through its own connection is found by the row's content.
func TestCrashHandler_AChangeOutsideTheTransactionIsFound(t *testing.T) {
	t.Parallel()
	p := pawltest.HandlerTest{Schema: []string{accounts}, Make: func(pool *pgxpool.Pool) consumer.Handler {
		return consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, _ consumer.Message[[]byte]) error {
			if _, err := pool.Exec(ctx, "update account set balance = balance - 10, touched = now() where no = 1"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "insert into booking (account) values (1)")
			return err
		})
	}}
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "(point 2): table account differs in balance from") {
		t.Errorf("said %q", said)
	}
	if said := judged(t, func(tb testing.TB) {
		q := p
		q.Ignore = []string{"account.balance"}
		pawltest.CrashEverywhere(tb, q)
	}); said != "" {
		t.Errorf("ignored, and yet said %q", said)
	}
}

// A handler that swaps values between two rows is found, though no column changes.
func TestCrashHandler_ValuesThatChangePlacesAreFound(t *testing.T) {
	t.Parallel()
	p := pawltest.HandlerTest{Schema: []string{"create table seat (no int primary key, guest text); insert into seat values (1, 'ann'), (2, 'bob')"}, Make: func(pool *pgxpool.Pool) consumer.Handler {
		return consumer.HandleTx(func(ctx context.Context, _ pgx.Tx, _ consumer.Message[[]byte]) error {
			_, err := pool.Exec(ctx, "update seat set guest = case guest when 'ann' then 'bob' else 'ann' end")
			return err
		})
	}}
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "rows of table seat have swapped values") {
		t.Errorf("said %q", said)
	}
}

// Headers and lanes of enqueued jobs are compared.
func TestCrashHandler_HeadersAndLanesAreCompared(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"headers", "lane"} {
		p := pawltest.HandlerTest{Schema: []string{"create table try (n int)"}, Make: func(pool *pgxpool.Pool) consumer.Handler {
			return consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, _ consumer.Message[[]byte]) error {
				var tries int
				if err := pool.QueryRow(ctx, "with t as (insert into try values (1)) select count(*) from try").Scan(&tries); err != nil {
					return err
				}
				r := job.Request{Queue: "q", Kind: "k", Headers: map[string]any{}, Lane: "l"}
				if column == "lane" {
					r.Lane = fmt.Sprint(tries)
				} else {
					r.Headers["tries"] = tries
				}
				_, err := job.Enqueue(ctx, tx, r)
				return err
			})
		}}
		if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "the list of enqueued jobs differs in "+column+" from") {
			t.Errorf("%s: said %q", column, said)
		}
	}
}

// Times, ids of a sequence and random values differ between runs and are not compared.
func TestCrashHandler_WhatDiffersFromRunToRunIsNotCompared(t *testing.T) {
	t.Parallel()
	p := pawltest.HandlerTest{Schema: []string{accounts}, Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, _ consumer.Message[[]byte]) error {
		_, err := tx.Exec(ctx, "with b as (insert into booking (account) values (1)) update account set balance = balance - 10, touched = now() where no = 1")
		return err
	})}
	pawltest.CrashEverywhere(t, p)
	j := &judge{TB: t}
	pawltest.Twice(j, p)
	if want := "differ between two undisturbed runs: account.touched, booking.at, booking.id, booking.token\n"; !strings.HasSuffix(j.logged.String(), want) {
		t.Errorf("logged %q", j.logged.String())
	}
	p.Ignore = []string{"account.ballance"}
	if said := judged(t, func(tb testing.TB) { pawltest.Twice(tb, p) }); !strings.Contains(said, `"account.ballance"`) {
		t.Errorf("a misspelt column: said %q", said)
	}
}

// Calls of other systems are for Check to count.
func TestCrashHandler_CallsOutsideAreFound(t *testing.T) {
	t.Parallel()
	var mails atomic.Int32
	p := pawltest.HandlerTest{Schema: []string{invoices},
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
			mails.Add(1) // a rollback does not undo it
			return invoice(ctx, tx, d)
		}),
		Check: func(tb testing.TB, _ *pgxpool.Pool) {
			if n := mails.Swap(0); n != 1 {
				tb.Errorf("%d mails", n)
			}
		}}
	if said := judged(t, func(tb testing.TB) { pawltest.CrashEverywhere(tb, p) }); !strings.Contains(said, "2 mails") {
		t.Errorf("said %q", said)
	}
}

// judged runs a test that must fail, and returns its messages.
func judged(t *testing.T, prove func(testing.TB)) string {
	j := &judge{TB: t}
	prove(j)
	return j.said.String()
}

type judge struct {
	testing.TB
	said, logged strings.Builder
}

func (j *judge) Logf(format string, args ...any) { fmt.Fprintf(&j.logged, format+"\n", args...) }

func (j *judge) Errorf(format string, args ...any) { fmt.Fprintf(&j.said, format+"\n", args...) }
func (j *judge) Fatalf(format string, args ...any) { j.Errorf(format, args...) }
