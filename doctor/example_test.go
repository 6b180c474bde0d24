package doctor_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// A job is due, and no worker serves its queue. The finding says which worker to start.
func ExampleDiagnose() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	conn, err := pgx.Connect(ctx, pawltest.URL(e)) // yours: a login with the rights of pawl_reader
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := job.Enqueue(ctx, conn, job.Request{Queue: "orders", Kind: "ship"}); err != nil {
		log.Fatal(err)
	}

	// By default a job may wait for 5 min.
	d, err := doctor.Diagnose(ctx, conn, doctor.Limits{Waiting: time.Microsecond})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range d.Findings {
		if f.Check == "waiting" {
			fmt.Println(f.Fix)
		}
	}
	// Output:
	// no worker that runs serves queue orders: start one; or: pawl jobs list --queue orders --kind ship
}
