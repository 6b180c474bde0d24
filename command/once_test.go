package command_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// A retry gets the same answer, byte for byte, and does nothing.
func TestOnce_AnswersAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.once("k", "p", place("one"))
	b.must(err)
	second, err := b.once("k", "p", fails(errors.New("never entered")))
	b.must(err)
	if first.Replayed || !second.Replayed || first.Value != second.Value || !bytes.Equal(first.Answer.Result, second.Answer.Result) ||
		first.Fence != second.Fence || second.Attempt != 1 {
		t.Errorf("%+v and then %+v", first, second)
	}
	if string(first.Answer.Result) != `{"id":1,"body":"one"}` || second.Answer.RefType != "order" || second.Answer.RefID != "one" {
		t.Errorf("stored %s, %s %s", first.Answer.Result, second.Answer.RefType, second.Answer.RefID)
	}
	b.wantOrders(1)
	b.wantStatus("succeeded 1")
	if b.counters.Count(pawl.EventSucceeded) != 1 || b.counters.Count(pawl.EventReplay) != 1 {
		t.Error("not counted")
	}
}

// A thousand calls with one key have one effect and one answer. Another payload is refused.
func TestOnce_ThousandAtOnce(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			o := b.options()
			o.Isolation, o.Wait = level, time.Minute
			const callers = 1000
			answers := make([]command.Result[order], callers)
			var all sync.WaitGroup
			start := make(chan struct{})
			for i := range callers {
				all.Go(func() {
					<-start
					var err error
					if answers[i], err = command.Once(t.Context(), b.pool, intent("k", "p"), o, place("one")); err != nil {
						t.Errorf("caller %d: %v", i, err)
					}
				})
			}
			close(start)
			all.Wait()
			fresh := 0
			for _, a := range answers {
				if !bytes.Equal(a.Answer.Result, answers[0].Answer.Result) || a.Value != answers[0].Value {
					t.Fatalf("answered %s and %s", a.Answer.Result, answers[0].Answer.Result)
				}
				if !a.Replayed {
					fresh++
				}
			}
			b.wantOrders(1)
			if fresh != 1 {
				t.Errorf("%d callers believe to be the first", fresh)
			}
			_, err := command.Once(t.Context(), b.pool, intent("k", "another"), o, place("two"))
			b.wantError(err, pawl.ErrKeyReused)
			b.wantOrders(1)
		})
	}
}

func TestOnceSQL_IsTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := stdlib.OpenDBFromPool(b.pool)
	insert := func(ctx context.Context, tx *sql.Tx) (o order, err error) {
		o.Body = "one"
		return o, tx.QueryRowContext(ctx, "insert into orders (body) values ('one') returning id").Scan(&o.ID)
	}
	fail := func(cause error) func(context.Context, *sql.Tx) (order, error) {
		return func(ctx context.Context, tx *sql.Tx) (order, error) {
			_, err := insert(ctx, tx)
			return order{}, errors.Join(err, cause)
		}
	}
	ask := func(key string, fn func(context.Context, *sql.Tx) (order, error)) (command.Result[order], error) {
		return command.OnceSQL(t.Context(), db, intent(key, "p"), b.options(), fn)
	}
	_, err := ask("1", fail(errors.New("boom")))
	if err == nil {
		t.Error("no error")
	}
	b.wantOrders(0)
	first, err := ask("1", insert)
	b.must(err)
	// The same row.
	again, err := command.Once(t.Context(), b.pool, intent("1", "p"), b.options(), place("never"))
	b.must(err)
	if first.Attempt != 2 || !again.Replayed || again.Value != first.Value {
		t.Errorf("%+v and then %+v", first, again)
	}
	_, err = ask("2", fail(pawl.Final(errors.New("no stock"))))
	b.wantError(err, pawl.ErrFailedFinal)
	_, err = ask("3", func(_ context.Context, tx *sql.Tx) (order, error) { return order{}, tx.Commit() })
	b.wantError(err, pawl.ErrOutcomeUnknown)
	_, err = ask("4", func(ctx context.Context, tx *sql.Tx) (order, error) {
		_, _ = tx.ExecContext(ctx, "select 1/0")
		return order{}, nil
	})
	if err == nil {
		t.Error("a swallowed error passes for success")
	}
	b.wantOrders(1)
	b.wantStatus("succeeded 2, failed_final 1, unknown 1, failed_retryable 1")
}

// A failure leaves only its record. A retryable one may be retried, a final one is the answer.
func TestOnce_Failures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	boom := errors.New("boom")
	_, err := b.once("k", "p", fails(boom))
	b.wantError(err, boom)
	b.wantStatus("failed_retryable 1")
	_, err = b.once("k", "p", func(context.Context, pgx.Tx) (order, error) { panic("bang") })
	if err == nil {
		t.Error("a panic is no error")
	}
	b.wantStatus("failed_retryable 2")
	_, err = b.once("k", "p", fails(pawl.Final(boom)))
	b.wantError(err, pawl.ErrFailedFinal)
	b.wantError(err, boom)
	b.wantStatus("failed_final 3")
	for range 2 {
		_, err = b.once("k", "p", place("never"))
		b.wantError(err, pawl.ErrFailedFinal)
		if f := command.FailureOf(err); f == nil || f.Message != "final: boom" || !f.Replayed || f.Attempt != 3 {
			t.Errorf("the stored failure is %+v", f)
		}
	}
	_, err = b.once("checked", "p", func(ctx context.Context, tx pgx.Tx) (order, error) {
		_, err := tx.Exec(ctx, "select 'x'::int")
		return order{}, err
	})
	b.wantError(err, pawl.ErrFailedFinal) // bad data fails the same way at every retry
	b.wantOrders(0)
}

// A failure at COMMIT is recorded by another transaction.
func TestT17_CommitFailuresAreRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table parent (id int primary key); create table child (id int references parent deferrable initially deferred)")
	orphan := func(ctx context.Context, tx pgx.Tx) (order, error) {
		_, err := tx.Exec(ctx, "insert into child values (1)")
		return order{}, err
	}
	for n := 1; n <= 2; n++ { // the first finds no row to update, the second does
		_, err := b.once("k", "p", orphan)
		if pawl.CodeOf(err) != "23503" {
			t.Errorf("got %v", err)
		}
		b.wantStatus(fmt.Sprintf("failed_retryable %d", n))
	}
	b.exec("insert into parent values (1)")
	r, err := b.once("k", "p", orphan)
	b.must(err)
	if r.Attempt != 3 {
		t.Errorf("attempt %d", r.Attempt)
	}
}

// A duplicate of a running call waits for its answer or fails at once. It holds no connection.
func TestOnce_WaitsOrFailsFast(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, err := b.once("k", "p", func(ctx context.Context, tx pgx.Tx) (order, error) {
			close(entered)
			<-goOn
			return place("one")(ctx, tx)
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-entered
	o := b.options()
	o.Wait = -1
	_, err := command.Once(t.Context(), b.pool, intent("k", "p"), o, place("two"))
	b.wantError(err, pawl.ErrInProgress)
	if after, ok := command.RetryAfter(err); !ok || after != time.Second || !pawl.Retryable(err) {
		t.Errorf("retry after %v, %v", after, ok)
	}
	o.Wait = time.Hour
	var replays sync.WaitGroup
	var waiting atomic.Int32
	for range 20 { // twice the pool
		replays.Go(func() {
			waiting.Add(1)
			r, err := command.Once(t.Context(), b.pool, intent("k", "p"), o, place("two"))
			if err != nil || !r.Replayed {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	patience.Until(b, "all wait, and only the running call holds a connection", func() bool {
		return waiting.Load() == 20 && b.pool.Stat().AcquiredConns() == 1
	})
	close(goOn)
	all.Wait()
	replays.Wait()
	b.wantOrders(1)
}

func TestT30_LostRacesRestart(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t, "create table stock (n int not null); insert into stock values (100)")
			o := b.options()
			o.Isolation = level
			var all sync.WaitGroup
			for n := range 20 {
				all.Go(func() {
					_, err := command.Once(t.Context(), b.pool, intent(fmt.Sprint(n), "p"), o, func(ctx context.Context, tx pgx.Tx) (order, error) {
						var left int
						if err := tx.QueryRow(ctx, "select n from stock").Scan(&left); err != nil {
							return order{}, err
						}
						if _, err := tx.Exec(ctx, "update stock set n = n - 1"); err != nil {
							return order{}, err
						}
						return place("one")(ctx, tx)
					})
					if err != nil && pawl.CodeOf(err) != "40001" {
						t.Error(err)
					}
				})
			}
			all.Wait()
			var sold, placed, recorded int
			b.must(b.pool.QueryRow(t.Context(), "select 100 - n, (select count(*) from orders), (select count(*) from pawl.command where status = 'succeeded') from stock").
				Scan(&sold, &placed, &recorded))
			b.want("select count(*) from pawl.command where status not in ('succeeded', 'failed_retryable')", 0)
			b.want("select count(*) from pawl.command", 20)
			if sold != placed || sold != recorded || sold == 0 {
				t.Errorf("sold %d, placed %d, recorded %d", sold, placed, recorded)
			}
		})
	}
}

func TestOnce_StoresExactOctets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	raw := []byte("\x00\xff not JSON")
	for range 2 {
		r, err := command.Once(t.Context(), b.pool, intent("raw", "p"), command.Options{}, func(context.Context, pgx.Tx) ([]byte, error) { return raw, nil })
		b.must(err)
		if !bytes.Equal(r.Value, raw) {
			t.Errorf("got %q", r.Value)
		}
	}
	answer := command.Answer{Result: raw, RefType: "t", RefID: "i",
		Response: &command.Response{Status: 201, Headers: map[string][]string{"Location": {"/orders/1"}}, Body: raw}}
	for range 2 {
		r, err := command.Once(t.Context(), b.pool, intent("whole", "p"), command.Options{}, func(context.Context, pgx.Tx) (command.Answer, error) { return answer, nil })
		b.must(err)
		if fmt.Sprintf("%q %v", r.Value.Result, *r.Value.Response) != fmt.Sprintf("%q %v", raw, *answer.Response) || r.Value.RefID != "i" {
			t.Errorf("got %+v", r.Value)
		}
	}
}

// The failure is recorded in the claiming transaction, so no other call can claim between the
// rollback and the record. A waiting call reads the failure.
func TestOnce_NoClaimBetweenFailureAndRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	next := make(chan string)
	_, err := b.once("k", "p", func(ctx context.Context, tx pgx.Tx) (order, error) {
		i := intent("k", "p")
		go func() {
			var outcome string
			err := b.pool.QueryRow(context.Background(), `select c.outcome from pawl_v1.command_claim($1, $2, $3, '{"wait_ms": 20000}') as c`,
				i.Scope, i.Key, i.Fingerprint[:]).Scan(&outcome)
			next <- fmt.Sprint(outcome, err)
		}()
		patience.Blocked(b, b.pool, 1, "%command_claim%")
		return fails(pawl.Final(errors.New("no stock")))(ctx, tx)
	})
	b.wantError(err, pawl.ErrFailedFinal)
	if got := <-next; got != "final_failure<nil>" {
		t.Errorf("who waited was told %s", got)
	}
}

// If another call has claimed before a final failure is recorded, its answer counts.
func TestOnce_TheRowDecides(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table parent (id int primary key); create table child (id int references parent deferrable initially deferred)")
	i := intent("k", "p")
	next := make(chan error)
	runs := 0
	r, err := b.once("k", "p", func(ctx context.Context, tx pgx.Tx) (order, error) {
		runs++
		if _, err := tx.Exec(ctx, "insert into child values (1)"); err != nil { // refused at COMMIT
			return order{}, err
		}
		// It claims and succeeds in one statement, before the failure is recorded.
		go func() {
			_, err := b.pool.Exec(context.Background(), `with c as materialized (
  select c.fence from pawl_v1.command_claim($1, $2, $3, '{"wait_ms": 20000, "lease_ms": null}') as c)
select pawl_v1.command_succeed($1, $2, c.fence, '{"id": 7, "body": "theirs"}') from c`, i.Scope, i.Key, i.Fingerprint[:])
			next <- err
		}()
		patience.Blocked(b, b.pool, 1, "%command_claim%")
		return order{Body: "ours"}, nil
	})
	b.must(<-next)
	switch {
	case err == nil && r.Replayed && r.Value.Body == "theirs":
		b.wantStatus("succeeded 1")
	default: // the failure was recorded first, and then the key was taken over
		b.wantStatus("succeeded 2")
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}
