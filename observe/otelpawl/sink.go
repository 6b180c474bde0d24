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
//
// If next is a [pawl.Broker], such as a sink of package sqs, the span has its system and queue, else "pawl" and the name of the sink.
func (t *Tracing) Sink(sink string, next pawl.Sink) pawl.Sink {
	traced := tracedSink{t, sink, next}
	if carrier, is := next.(pawl.Carrier); is {
		return tracedCarrier{traced, carrier}
	}
	return traced
}

// A tracedCarrier still says what the sink can carry.
type tracedCarrier struct {
	tracedSink
	carrier pawl.Carrier
}

func (s tracedCarrier) Carries(m pawl.Message) error { return s.carrier.Carries(m) }

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
	broker, _ := s.next.(pawl.Broker)
	ctx, span := s.tracing.tracer.Start(ctx, "send "+s.name, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links(from)...),
		trace.WithAttributes(messaging(broker, s.name)...), trace.WithAttributes(semconv.MessagingOperationName("send"),
			semconv.MessagingOperationTypeSend, semconv.MessagingBatchMessageCount(len(ms))))
	defer span.End()
	errs := s.next.Publish(ctx, ms)
	if err := errors.Join(errs...); err != nil {
		span.RecordError(err)
		for _, one := range errs {
			if one != nil {
				span.SetAttributes(errorType(one)) // of the first
				break
			}
		}
		span.SetStatus(codes.Error, err.Error())
	}
	return errs
}
