package otelpawl

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-go/pawl"
)

// Sink returns next with a span around each call of Publish, for outbox.Config: "send" and the name of the sink, with a link to
// whoever appended each event. The events themselves carry the trace of whoever appended them, not that of the relay.
func (t *Tracing) Sink(sink string, next pawl.Sink) pawl.Sink { return tracedSink{t, sink, next} }

type tracedSink struct {
	tracing *Tracing
	name    string
	next    pawl.Sink
}

func (s tracedSink) Publish(ctx context.Context, ms []pawl.Message) []error {
	from := make([]pawl.Trace, len(ms))
	for i, m := range ms {
		from[i] = pawl.Trace{Parent: m.Headers["traceparent"], State: m.Headers["tracestate"]}
	}
	ctx, span := s.tracing.tracer.Start(ctx, "send "+s.name, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links(from)...),
		trace.WithAttributes(semconv.MessagingSystemKey.String("pawl"), semconv.MessagingOperationName("send"), semconv.MessagingOperationTypeSend,
			semconv.MessagingDestinationName(s.name), semconv.MessagingBatchMessageCount(len(ms))))
	defer span.End()
	errs := s.next.Publish(ctx, ms)
	if err := errors.Join(errs...); err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return errs
}
