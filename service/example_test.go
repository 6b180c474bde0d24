package service_test

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/service"
)

// A consumer, a worker and an HTTP server share a pool. Run refuses a pool that is too small before
// it starts a part.
func ExampleApp() {
	run := func(ctx context.Context) error {
		pool, cfg, err := service.FromEnv(ctx)
		if err != nil {
			return err
		}
		app, err := service.New(pool, cfg)
		if err != nil {
			return err
		}
		app.Consumer(consumer.Config{Name: "orders", Source: &pawltest.Source{}, Handler: consumer.HandleTx(
			func(ctx context.Context, tx pgx.Tx, m consumer.Message[int]) error {
				_, err := job.Enqueue(ctx, tx, job.Request{Queue: "ledger", Kind: "book", Value: m.Value})
				return err
			})})
		app.Worker(job.Config{Queues: []job.Queue{{Name: "ledger"}}, Handlers: []job.Handler{job.HandleTx("book",
			func(ctx context.Context, tx pgx.Tx, t job.Task[int]) error { return nil })}})
		app.HTTP(service.HTTPConfig{Address: "localhost:8080", Handler: http.NotFoundHandler(), MaxConns: 6})
		return app.Run(ctx)
	}
	os.Setenv("DATABASE_URL", "postgres://localhost/shop?pool_max_conns=12") // yours is set outside
	// In a main function write service.Main(run).
	fmt.Println(run(context.Background()))
	// Output:
	// service.run: P4004 an argument is missing or out of its bounds: the pool has 12 connections, but the parts need 13 at least: consumer orders 4, worker ledger 3, HTTP localhost:8080 6 (set pool_max_conns=13 in the database URL, or more, or lower their Concurrency)
}
