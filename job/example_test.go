package job_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

type receipt struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// A job is enqueued in the transaction that needs it. Its handler's rows and its end commit
// together. A second enqueue with the same key is a duplicate.
func Example() {
	ctx, pool, end := example("create table booking (order_id text, cents int)")
	defer end()
	enqueue := func(tx pgx.Tx) error {
		_, err := job.Enqueue(ctx, tx, job.Request{Queue: "ledger", Kind: "book", Key: "order-17", Value: receipt{"order-17", 1250}})
		return err
	}
	fmt.Println(pgx.BeginFunc(ctx, pool, enqueue))
	fmt.Println(pgx.BeginFunc(ctx, pool, enqueue)) // a client that timed out retries

	done := make(chan struct{})
	worker, err := job.NewWorker(pool, job.Config{
		Queues: []job.Queue{{Name: "ledger"}},
		Handlers: []job.Handler{job.HandleTx("book", func(ctx context.Context, tx pgx.Tx, t job.Task[receipt]) error {
			_, err := tx.Exec(ctx, "insert into booking values ($1, $2)", t.Value.Order, t.Value.Cents)
			return err
		})},
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			fmt.Println(e.Kind)
			close(done)
		}},
	})
	fmt.Println(err)
	stop := start(ctx, worker)
	<-done
	stop()
	show(ctx, pool, "select count(*) || ' booking of ' || sum(cents) from booking")
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// succeeded
	// 1 booking of 1250
}

// One of three documents cannot be indexed. The batch runs again in halves; one job is charged.
func ExampleHandleManyTx() {
	ctx, pool, end := example("create table word (text text)")
	defer end()
	for _, text := range []string{"once", "", "twice"} {
		if _, err := job.Enqueue(ctx, pool, job.Request{Queue: "search", Kind: "index", Value: text}); err != nil {
			fmt.Println(err)
		}
	}
	index := func(ctx context.Context, tx pgx.Tx, ts []job.Task[string]) error {
		for _, t := range ts {
			if t.Value == "" {
				return pawl.Final(errors.New("an empty document"))
			}
			if _, err := tx.Exec(ctx, "insert into word values ($1)", t.Value); err != nil {
				return err
			}
		}
		return nil
	}
	done := make(chan struct{})
	worker, err := job.NewWorker(pool, job.Config{
		Queues:   []job.Queue{{Name: "search"}},
		Handlers: []job.Handler{job.HandleManyTx("index", index)},
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			fmt.Println(e.Kind, max(e.Count, 1), e.Err)
			if e.Kind == pawl.EventSucceeded {
				close(done)
			}
		}},
	})
	fmt.Println(err)
	stop := start(ctx, worker)
	<-done
	stop()
	show(ctx, pool, "select string_agg(text, ', ' order by text) from word")
	// Output:
	// <nil>
	// failed 1 final: an empty document
	// succeeded 2 <nil>
	// once, twice
}

// A database/sql transaction is passed in a wrapper. After a rollback, no job was enqueued.
func ExampleEnqueue_databaseSQL() {
	ctx, pool, end := example("")
	defer end()
	db := stdlib.OpenDBFromPool(pool)
	tx, err := db.BeginTx(ctx, nil)
	fmt.Println(err)
	e, err := job.Enqueue(ctx, pawl.SQLTx(tx), job.Request{Queue: "mail", Kind: "receipt", StartIn: time.Minute})
	fmt.Println(e.Duplicate, err)
	fmt.Println(tx.Rollback())
	show(ctx, pool, "select count(*) || ' jobs' from pawl.job")
	// Output:
	// <nil>
	// false <nil>
	// <nil>
	// 0 jobs
}

// A report that is too early is snoozed, uncharged. A rate-limited charge waits as long as asked.
func ExampleSnooze() {
	ctx, pool, end := example("")
	defer end()
	for _, kind := range []string{"report", "charge"} {
		if _, err := job.Enqueue(ctx, pool, job.Request{Queue: "q", Kind: kind}); err != nil {
			fmt.Println(err)
		}
	}
	seen := make(chan pawl.EventKind, 2)
	worker, err := job.NewWorker(pool, job.Config{
		Queues: []job.Queue{{Name: "q", Concurrency: 1}},
		Handlers: []job.Handler{
			job.Handle("report", func(context.Context, job.Task[[]byte]) error { return job.Snooze(time.Hour) }),
			job.Handle("charge", func(context.Context, job.Task[[]byte]) error {
				return job.RetryAfter(time.Minute, errors.New("429 Too Many Requests"))
			}),
		},
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { seen <- e.Kind }},
	})
	fmt.Println(err)
	stop := start(ctx, worker)
	fmt.Println(<-seen, <-seen)
	stop()
	show(ctx, pool, "select string_agg(kind || ': ' || attempts, ', ' order by id) from pawl.job")
	// Output:
	// <nil>
	// snoozed retryable
	// report: 0, charge: 1
}

// A job to ship an order is there before the order is paid. It waits uncharged, for at most a day,
// and says what it waits for.
func ExampleWaitFor() {
	ctx, pool, end := example("create table payment (order_no text primary key)")
	defer end()
	if _, err := job.Enqueue(ctx, pool, job.Request{Queue: "q", Kind: "ship", Value: "A-17"}); err != nil {
		fmt.Println(err)
	}
	waiting, shipped := make(chan error, 1), make(chan pawl.EventKind, 1)
	worker, err := job.NewWorker(pool, job.Config{
		Queues: []job.Queue{{Name: "q", Concurrency: 1}},
		Handlers: []job.Handler{job.HandleTx("ship", func(ctx context.Context, tx pgx.Tx, t job.Task[string]) error {
			var paid bool
			err := tx.QueryRow(ctx, "select exists (select from payment where order_no = $1)", t.Value).Scan(&paid)
			if err == nil && !paid {
				err = job.WaitFor("the payment of order "+t.Value, 10*time.Millisecond, 24*time.Hour)
			}
			return err
		})},
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			switch e.Kind {
			case pawl.EventSnoozed:
				select {
				case waiting <- e.Err:
				default:
				}
			case pawl.EventSucceeded:
				shipped <- e.Kind
			}
		}},
	})
	fmt.Println(err)
	stop := start(ctx, worker)
	fmt.Println(<-waiting)
	_, err = pool.Exec(ctx, "insert into payment values ('A-17')")
	fmt.Println(err)
	fmt.Println(<-shipped)
	stop()
	// Output:
	// <nil>
	// waits for the payment of order A-17
	// <nil>
	// succeeded
}

// Bookings of one account run one at a time, in the order in which they were enqueued, even if the
// worker has many free slots. A failed job keeps its turn.
func Example_lane() {
	ctx, pool, end := example("")
	defer end()
	for _, r := range []job.Request{
		{Lane: "account-17", Value: "deposit"}, {Lane: "account-17", Value: "withdraw"}, {Lane: "account-17", Value: "close"},
	} {
		r.Queue, r.Kind = "ledger", "book"
		if _, err := job.Enqueue(ctx, pool, r); err != nil {
			fmt.Println(err)
		}
	}
	done := make(chan struct{})
	worker, err := job.NewWorker(pool, job.Config{
		Queues: []job.Queue{{Name: "ledger", Concurrency: 8}},
		Handlers: []job.Handler{job.Handle("book", func(_ context.Context, t job.Task[string]) error {
			fmt.Println(t.Lane, t.Value, t.Attempt)
			switch {
			case t.Value == "withdraw" && t.Attempt == 1:
				return job.RetryAfter(time.Millisecond, errors.New("the bank is away"))
			case t.Value == "close":
				close(done)
			}
			return nil
		})},
		Poll:  10 * time.Millisecond,
		Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}},
	})
	fmt.Println(err)
	stop := start(ctx, worker)
	<-done
	stop()
	// Output:
	// <nil>
	// account-17 deposit 1
	// account-17 withdraw 1
	// account-17 withdraw 2
	// account-17 close 1
}

func example(schema string) (ctx context.Context, pool *pgxpool.Pool, end func()) {
	e := &pgtest.Example{}
	return e.Context(), pawltest.DB(e, schema), e.End
}

// start runs a worker until the returned function is called.
func start(ctx context.Context, w *job.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			fmt.Println(err)
		}
	}
}

func show(ctx context.Context, pool *pgxpool.Pool, query string) {
	var text string
	if err := pool.QueryRow(ctx, query).Scan(&text); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(text)
}
