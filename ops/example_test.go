package ops_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
)

// Look at the dead letters, decide, act. From says what the decision was about: if somebody else has acted in between, the
// job is left alone, and the result says so.
func Example() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	conn, err := pgx.Connect(ctx, pawltest.URL(e)) // yours: the database of the workers
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := bury(ctx, conn); err != nil {
		log.Fatal(err)
	}

	dead, err := ops.List(ctx, conn, ops.Filter{Statuses: []ops.Status{ops.StatusDeadLetter}})
	if err != nil {
		log.Fatal(err)
	}
	for _, j := range dead {
		fmt.Printf("job %d of %s: %s\n", j.ID, j.Queue, j.LastError)
	}

	by := ops.By{Actor: "ann", Reason: "the stock service is back", From: []ops.Status{ops.StatusDeadLetter}}
	for range 2 {
		r, err := ops.Retry(ctx, conn, dead[0].ID, by)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Outcome, r.Was, r.Changed())
	}

	d, _, err := ops.Show(ctx, conn, dead[0].ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range d.Changes {
		fmt.Println(c.Actor, c.Verb, c.Reason)
	}
	// Output:
	// job 1 of orders: final: no such item in stock
	// retried dead_letter true
	// refused pending false
	// ann job_retry the stock service is back
}

// bury makes one dead letter.
func bury(ctx context.Context, conn *pgx.Conn) error {
	if _, err := job.Enqueue(ctx, conn, job.Request{Queue: "orders", Kind: "charge"}); err != nil {
		return err
	}
	var worker int64
	if err := conn.QueryRow(ctx, "select w.worker_id from pawl_v1.worker_register('example') as w").Scan(&worker); err != nil {
		return err
	}
	jobs, err := job.Claim(ctx, conn, "orders", worker, 1)
	if err != nil {
		return err
	}
	_, err = jobs[0].Fail(ctx, conn, pawl.Final(errors.New("no such item in stock")), job.Backoff{})
	return err
}
