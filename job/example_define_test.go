package job_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// book is used by the code that enqueues and by the worker.
var book = job.Define("book", job.Defaults[receipt]{Queue: "ledger", MaxAttempts: 5, Key: func(r receipt) string { return r.Order }})

// A definition enqueues jobs and makes their handler. The worker takes the queue from it.
func ExampleDefine() {
	ctx, pool, end := example("create table booking (order_id text, cents int)")
	defer end()
	for range 2 {
		e, err := book.Enqueue(ctx, pool, receipt{"order-17", 1250})
		fmt.Println(e.Duplicate, err)
	}

	done := make(chan struct{})
	worker, err := job.NewWorker(pool, job.Config{
		Handlers: []job.Handler{book.HandleTx(func(ctx context.Context, tx pgx.Tx, t job.Task[receipt]) error {
			_, err := tx.Exec(ctx, "insert into booking values ($1, $2)", t.Value.Order, t.Value.Cents)
			return err
		})},
		Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) { close(done) }},
	})
	fmt.Println(err)
	stop := start(ctx, worker)
	<-done
	stop()
	show(ctx, pool, "select count(*) || ' booking of ' || sum(cents) from booking")
	// Output:
	// false <nil>
	// true <nil>
	// <nil>
	// 1 booking of 1250
}

// EnqueueMany stores several jobs in a database/sql transaction. They exist if it commits.
func ExampleDefinition_EnqueueMany() {
	ctx, pool, end := example("create table booking (order_id text, cents int)")
	defer end()
	tx, err := stdlib.OpenDBFromPool(pool).BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	all, err := book.EnqueueMany(ctx, pawl.SQL(tx), []receipt{{"order-17", 1250}, {"order-18", 300}})
	fmt.Println(len(all), err)
	fmt.Println(tx.Commit())
	show(ctx, pool, "select count(*) || ' jobs' from pawl.job")
	// Output:
	// 2 <nil>
	// <nil>
	// 2 jobs
}

// The gateway is called outside a transaction. Its result and the end of the job commit together.
func ExampleHandleThenTx() {
	ctx, pool, end := example("create table booking (order_id text, cents int)")
	defer end()
	if _, err := book.Enqueue(ctx, pool, receipt{"order-17", 1250}); err != nil {
		fmt.Println(err)
	}
	done := make(chan struct{})
	worker, err := job.NewWorker(pool, job.Config{
		Handlers: []job.Handler{job.HandleThenTx(book, func(_ context.Context, t job.Task[receipt]) (int, error) {
			return t.Value.Cents * 2, nil // as a gateway would answer
		}, func(ctx context.Context, tx pgx.Tx, t job.Task[receipt], charged int) error {
			_, err := tx.Exec(ctx, "insert into booking values ($1, $2)", t.Value.Order, charged)
			return err
		})},
		Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) { close(done) }},
	})
	fmt.Println(err)
	stop := start(ctx, worker)
	<-done
	stop()
	show(ctx, pool, "select count(*) || ' booking of ' || sum(cents) from booking")
	// Output:
	// <nil>
	// 1 booking of 2500
}

// The handler writes through a *sql.Tx, the transaction in which the job ends.
func ExampleHandleSQL() {
	ctx, pool, end := example("create table booking (order_id text, cents int)")
	defer end()
	if _, err := book.Enqueue(ctx, pool, receipt{"order-17", 1250}); err != nil {
		fmt.Println(err)
	}
	done := make(chan struct{})
	worker, err := job.NewWorker(pool, job.Config{
		Handlers: []job.Handler{book.HandleSQL(func(ctx context.Context, tx *sql.Tx, t job.Task[receipt]) error {
			_, err := tx.ExecContext(ctx, "insert into booking values ($1, $2)", t.Value.Order, t.Value.Cents)
			return err
		})},
		Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) { close(done) }},
	})
	fmt.Println(err)
	stop := start(ctx, worker)
	<-done
	stop()
	show(ctx, pool, "select count(*) || ' booking of ' || sum(cents) from booking")
	// Output:
	// <nil>
	// 1 booking of 1250
}
