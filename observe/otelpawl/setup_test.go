package otelpawl_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/observe/otelpawl"
	"github.com/pawl-go/pawl/pawltest"
)

// A bed is a database, and an exporter that keeps spans in memory.
type bed struct {
	*testing.T
	pool     *pgxpool.Pool
	exporter *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	tracing  *otelpawl.Tracing
}

func setup(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, pool: bigPool(t, pawltest.URL(t)), exporter: tracetest.NewInMemoryExporter()}
	b.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.exporter))
	b.tracing = otelpawl.NewTracing(b.provider)
	return b
}

// bigPool returns a pool with connections for a consumer and a worker.
func bigPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// run runs do until the test ends.
func (b *bed) run(do func(context.Context) error) {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- do(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			b.Errorf("run: %v", err)
		}
	})
}

func (b *bed) work(queue string, handlers ...job.Handler) {
	b.Helper()
	w, err := job.NewWorker(b.pool, job.Config{Queues: []job.Queue{{Name: queue}}, Handlers: handlers, Middleware: []job.Middleware{b.tracing.Job()},
		Poll: 10 * time.Millisecond, Backoff: job.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}, Hooks: quiet})
	b.must(err)
	b.run(w.Run)
}

var quiet = pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}

// ended waits for n ended spans with a name.
func (b *bed) ended(name string, n int) []tracetest.SpanStub {
	b.Helper()
	var found []tracetest.SpanStub
	patience.Until(b, fmt.Sprintf("%d spans %q have ended", n, name), func() bool {
		found = slices.DeleteFunc(b.exporter.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != name })
		return len(found) >= n
	})
	return found
}

func (b *bed) wantParent(child, parent trace.SpanContext, actual trace.SpanContext) {
	b.Helper()
	if actual.SpanID() != parent.SpanID() || child.TraceID() != parent.TraceID() {
		b.Errorf("span %v of trace %v has parent %v, want %v of trace %v", child.SpanID(), child.TraceID(), actual.SpanID(), parent.SpanID(), parent.TraceID())
	}
}

// wantLink fails the test unless the only link of a span is to cause.
func (b *bed) wantLink(s tracetest.SpanStub, cause trace.SpanContext) {
	b.Helper()
	if len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != cause.SpanID() || s.Links[0].SpanContext.TraceID() != cause.TraceID() {
		b.Errorf("%s has the links %v, want one to span %v of trace %v", s.Name, s.Links, cause.SpanID(), cause.TraceID())
	}
}

// wantNamedByItsAttributes fails the test unless a span is named after its operation and
// destination.
func (b *bed) wantNamedByItsAttributes(s tracetest.SpanStub) {
	b.Helper()
	if want := attributeOf(s, "messaging.operation.name") + " " + attributeOf(s, "messaging.destination.name"); s.Name != want {
		b.Errorf("a span is named %q, its attributes say %q", s.Name, want)
	}
}

func attributeOf(s tracetest.SpanStub, name attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == name {
			return a.Value.String()
		}
	}
	return ""
}
