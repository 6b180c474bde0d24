package prompawl_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/prompawl"
	"github.com/pawl-go/pawl/pawltest"
)

// Export the events of this process and the gauges of the database on one page for Prometheus.
func Example() {
	example := &pgtest.Example{}
	defer example.End()
	pool := pawltest.DB(example)

	events := prompawl.NewEvents(observe.EventOptions{})
	database, err := prompawl.NewDatabase(pool, observe.DatabaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(events, database)
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer page.Close()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan struct{})
	worker, err := job.NewWorker(pool, job.Config{
		Queues:   []job.Queue{{Name: "mail"}},
		Handlers: []job.Handler{job.Handle("receipt", func(context.Context, job.Task[string]) error { return nil })},
		// in a service: pawl.LogTo(nil)
		Hooks: pawl.Join(events.Hooks(), pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {
			close(done)
		}}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Run(ctx) }()
	_, _ = job.Enqueue(ctx, pool, job.Request{Queue: "mail", Kind: "receipt", Value: "order-17"})
	<-done
	stop()
	fmt.Println(<-stopped)
	_, _ = job.Enqueue(context.Background(), pool, job.Request{Queue: "mail", Kind: "receipt", Value: "order-18", StartIn: time.Hour})

	response, err := page.Client().Get(page.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "pawl_events_total") || strings.HasPrefix(line, "pawl_jobs") || strings.HasPrefix(line, "pawl_handler_duration_seconds_count") {
			fmt.Print(line)
		}
	}
	// Output:
	// <nil>
	// pawl_events_total{kind="succeeded",op="job.finish",scope="mail"} 1
	// pawl_handler_duration_seconds_count{op="job.finish",scope="mail"} 1
	// pawl_jobs{queue="mail",status="pending"} 1
}
