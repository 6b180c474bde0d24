package otelpawl_test

import (
	"context"
	"fmt"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/otelpawl"
	"github.com/pawl-go/pawl/pawltest"
)

// A job is enqueued within a span. The span of its handler is a child of it, in any process and at
// any later time.
func ExampleTracing() {
	example := &pgtest.Example{}
	defer example.End()
	pool := pawltest.DB(example)
	exporter := tracetest.NewInMemoryExporter() // yours sends them to a collector
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	tracing := otelpawl.NewTracing(provider)

	ctx, order := provider.Tracer("shop").Start(context.Background(), "order")
	_, err := job.Enqueue(otelpawl.Inject(ctx), pool, job.Request{Queue: "mail", Kind: "receipt", Value: "order-17"})
	order.End()
	fmt.Println(err)

	events, err := otelpawl.Events(sdkmetric.NewMeterProvider(), observe.EventOptions{})
	fmt.Println(err)
	done := make(chan struct{})
	worker, err := job.NewWorker(pool, job.Config{
		Queues:     []job.Queue{{Name: "mail"}},
		Middleware: []job.Middleware{tracing.Job()},
		Handlers: []job.Handler{job.Handle("receipt", func(ctx context.Context, _ job.Task[string]) error {
			fmt.Println("same trace:", trace.SpanContextFromContext(ctx).TraceID() == order.SpanContext().TraceID())
			return nil
		})},
		Hooks: pawl.Join(events, pawl.Hooks{OnEvent: func(context.Context, pawl.Event) { close(done) }}),
	})
	fmt.Println(err)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Run(ctx) }()
	<-done
	stop()
	fmt.Println(<-stopped)
	for _, s := range exporter.GetSpans() {
		fmt.Println(s.SpanKind, s.Name)
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// same trace: true
	// <nil>
	// internal order
	// consumer process mail
}
