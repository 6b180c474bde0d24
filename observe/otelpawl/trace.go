package otelpawl

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-go/pawl"
)

// w3c is the fixed format in which traces are stored. It does not depend on the process's global
// propagator, because another process may read the row much later.
var w3c propagation.TraceContext

// Inject returns a context whose enqueued jobs, appended events and sent messages carry the span of
// ctx. Contexts of handlers under [Tracing] have it already.
func Inject(ctx context.Context) context.Context {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return ctx
	}
	return pawl.WithTrace(ctx, pawl.Trace{Parent: carrier["traceparent"], State: carrier["tracestate"]})
}

// Extract returns a context with the remote span of [pawl.TraceOf], if there is one. Contexts of
// handlers under [Tracing] have a child span of it already.
func Extract(ctx context.Context) context.Context {
	return extract(ctx, pawl.TraceOf(ctx))
}

func extract(ctx context.Context, t pawl.Trace) context.Context {
	return w3c.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
}

// links returns links to the valid traces.
func links(traces []pawl.Trace) (all []trace.Link) {
	for _, t := range traces {
		if c := trace.SpanContextFromContext(extract(context.Background(), t)); c.IsValid() {
			all = append(all, trace.Link{SpanContext: c})
		}
	}
	return all
}

// Transport returns a RoundTripper that sends the span of the request's context as traceparent and
// tracestate. It creates no span; the transport of otelhttp does both. A nil base means
// [http.DefaultTransport].
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not modify the request
	w3c.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	return t.base.RoundTrip(r)
}
