package schedule_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
)

// A program puts its schedules each time it starts, and runs a keeper beside its worker. TickOf
// returns the tick of a job, so that a late job still reports on the right day.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	e := &pgtest.Example{}
	defer e.End()
	pool, err := pgxpool.New(ctx, pawltest.URL(e)) // yours: the database of the workers
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	report := schedule.Schedule{Name: "report", Plan: schedule.Every(24 * time.Hour), Queue: "reports", Kind: "report",
		FirstAt: time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)} // has passed, so it is due
	for range 2 {
		stored, err := schedule.Put(ctx, pool, report)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(stored)
	}

	worker, err := job.NewWorker(pool, job.Config{Queues: []job.Queue{{Name: "reports"}}, Handlers: []job.Handler{
		job.Handle("report", func(_ context.Context, t job.Task[[]byte]) error {
			tick, _ := schedule.TickOf(t.Job)
			fmt.Println(tick.Schedule, tick.At.Format("15:04"))
			stop()
			return nil
		})}})
	if err != nil {
		log.Fatal(err)
	}
	keeper, err := schedule.NewKeeper(pool, schedule.Config{})
	if err != nil {
		log.Fatal(err)
	}
	kept := make(chan error)
	go func() { kept <- keeper.Run(ctx) }()
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-kept)
	// Output:
	// created
	// unchanged
	// report 06:00
	// <nil>
}
