package ops_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/jobtest"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
)

// List the dead letters, decide, act. The Ref of a listed job holds the state that the decision is
// based on. If the job has changed meanwhile, it is left alone, and the result says so.
func Example() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	conn := connect(ctx, e) // yours: the database of the workers
	defer conn.Close(ctx)
	bury(ctx, conn)

	page, err := ops.Jobs{Statuses: []ops.Status{ops.StatusDeadLetter}}.List(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	dead := page.Rows[0]
	fmt.Printf("job %d of %s: %s\n", dead.ID, dead.Queue, dead.LastError)

	by := ops.By{Actor: "ann", Reason: "the stock service is back"}
	for range 2 {
		r, err := dead.Ref().Retry(ctx, conn, by)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Outcome, r.Was, r.Changed())
	}

	job, err := ops.JobRef{ID: dead.ID}.Get(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range job.Changes {
		fmt.Println(c.Actor, c.Verb, c.Reason)
	}
	// Output:
	// job 1 of orders: final: no such item in stock
	// retried dead_letter true
	// refused pending false
	// ann job_retry the stock service is back
}

// Retry all dead letters with one error. A dry run counts them first.
func ExampleJobs_RetryAll() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	conn := connect(ctx, e)
	defer conn.Close(ctx)
	bury(ctx, conn)

	dead := ops.Jobs{Queue: "orders", Error: "no such item"}
	for _, by := range []ops.By{ops.DryRun, {Actor: "ann", Reason: "the item is there now"}} {
		tally, err := dead.RetryAll(ctx, conn, by, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d selected, %d retried\n", tally.Matched, tally.Done)
	}
	// Output:
	// 1 selected, 0 retried
	// 1 selected, 1 retried
}

// Pause a queue, then resume it.
func ExampleQueueRef_Pause() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	conn := connect(ctx, e)
	defer conn.Close(ctx)

	orders := ops.QueueRef{Name: "orders"}
	paused, err := orders.Pause(ctx, conn, ops.By{Actor: "ann", Reason: "the stock service is down"})
	if err != nil {
		log.Fatal(err)
	}
	resumed, err := orders.Resume(ctx, conn, ops.By{Actor: "ann", Reason: "it is back"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(paused.Outcome, paused.Was, paused.Now)
	fmt.Println(resumed.Outcome, resumed.Was, resumed.Now)
	// Output:
	// changed running paused
	// changed paused running
}

// Print the history of a key.
func ExampleExplain() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	conn := connect(ctx, e)
	defer conn.Close(ctx)
	bury(ctx, conn)

	story, err := ops.Explain(ctx, conn, "1", "")
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range story.Moments {
		fmt.Println(m.Kind, m.Scope, m.Key, m.Event)
	}
	// Output:
	// job orders 1 enqueued
	// job orders 1 failed
	// job orders 1 dead_letter
}

// Purge expired rows. Run it every hour.
func ExamplePurge() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	conn := connect(ctx, e)
	defer conn.Close(ctx)

	tally, err := ops.Purge(ctx, conn, ops.PurgeRule{Table: ops.TableCommand}, ops.By{Actor: "cron", Reason: "hourly"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tally.Done, "rows deleted")
	// Output: 0 rows deleted
}

func connect(ctx context.Context, e *pgtest.Example) *pgx.Conn {
	conn, err := pgx.Connect(ctx, pawltest.URL(e))
	if err != nil {
		log.Fatal(err)
	}
	return conn
}

// bury creates one dead letter.
func bury(ctx context.Context, conn *pgx.Conn) {
	_, err := job.Enqueue(ctx, conn, job.Request{Queue: "orders", Kind: "charge"})
	if err != nil {
		log.Fatal(err)
	}
	var worker int64
	if err := conn.QueryRow(ctx, "select w.worker_id from pawl_v1.worker_register('example') as w").Scan(&worker); err != nil {
		log.Fatal(err)
	}
	jobs, err := jobtest.Claim(ctx, conn, "orders", worker, 1)
	if err != nil {
		log.Fatal(err)
	}
	if _, err = jobs[0].Fail(ctx, conn, pawl.Final(errors.New("no such item in stock")), job.Backoff{}); err != nil {
		log.Fatal(err)
	}
}
