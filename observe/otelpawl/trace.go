package otelpawl

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-go/pawl"
)

// w3c is how a trace is written down, whatever the process has set for others: a row may be read long after by another one.
var w3c propagation.TraceContext

// Inject returns a context whose enqueued jobs, appended events and sent messages carry the span of ctx. The contexts of handlers under
// [Tracing] have it.
func Inject(ctx context.Context) context.Context {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return ctx
	}
	return pawl.WithTrace(ctx, pawl.Trace{Parent: carrier["traceparent"], State: carrier["tracestate"]})
}

// Extract returns a context whose span is the remote one that [pawl.TraceOf] knows, if there is one. The contexts of handlers under
// [Tracing] have a span of their own below it.
func Extract(ctx context.Context) context.Context {
	return extract(ctx, pawl.TraceOf(ctx))
}

func extract(ctx context.Context, t pawl.Trace) context.Context {
	return w3c.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
}

// links are those to the traces that there are.
func links(traces []pawl.Trace) (all []trace.Link) {
	for _, t := range traces {
		if c := trace.SpanContextFromContext(extract(context.Background(), t)); c.IsValid() {
			all = append(all, trace.Link{SpanContext: c})
		}
	}
	return all
}

// Transport returns a RoundTripper that sends the span of the request's context along, as traceparent and tracestate. It makes no
// span of its own; the transport of otelhttp does both. A nil base is [http.DefaultTransport].
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper leaves the request as it is
	w3c.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	return t.base.RoundTrip(r)
}
