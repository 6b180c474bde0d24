package otelpawl

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-go/pawl"
)

// Sink returns next with a span around each call of Publish and PublishBatch, for outbox.Config.
// The span is named "send" and the destination, and links to the trace in which each event was
// appended. The events themselves carry that trace, not the relay's. The result is a [pawl.Carrier]
// or a [pawl.BatchSink] if next is.
//
// If next is a [pawl.Broker], such as a sink of package pawlsqs, the span has its system and queue
// as messaging.system and messaging.destination.name. Otherwise these are "pawl" and the name of
// the sink.
func (t *Tracing) Sink(sink string, next pawl.Sink) pawl.Sink {
	traced := tracedSink{t, sink, next}
	carrier, carries := next.(pawl.Carrier)
	log, takesBatches := next.(pawl.BatchSink)
	switch {
	case carries && takesBatches:
		return struct {
			tracedBatchSink
			carrying
		}{tracedBatchSink{traced, log}, carrying{carrier}}
	case takesBatches:
		return tracedBatchSink{traced, log}
	case carries:
		return struct {
			tracedSink
			carrying
		}{traced, carrying{carrier}}
	}
	return traced
}

// carrying adds the Carries method of a sink.
type carrying struct{ carrier pawl.Carrier }

func (c carrying) Carries(m pawl.Message) error { return c.carrier.Carries(m) }

type tracedSink struct {
	tracing *Tracing
	name    string
	next    pawl.Sink
}

func (s tracedSink) Publish(ctx context.Context, ms []pawl.Message) []error {
	ctx, span := s.start(ctx, ms)
	defer span.End()
	errs := s.next.Publish(ctx, ms)
	failed(span, errs...)
	return errs
}

// A tracedBatchSink also publishes batches of one aggregate.
type tracedBatchSink struct {
	tracedSink
	log pawl.BatchSink
}

func (s tracedBatchSink) PublishBatch(ctx context.Context, ms []pawl.Message) (accepted int, err error) {
	ctx, span := s.start(ctx, ms)
	defer span.End()
	accepted, err = s.log.PublishBatch(ctx, ms)
	if accepted != len(ms) { // otherwise the caller ignores err
		failed(span, err)
	}
	return accepted, err
}

func (s tracedSink) start(ctx context.Context, ms []pawl.Message) (context.Context, trace.Span) {
	from := make([]pawl.Trace, len(ms))
	for i, m := range ms {
		from[i] = pawl.Trace{Parent: m.Headers["traceparent"], State: m.Headers["tracestate"]}
	}
	broker, _ := s.next.(pawl.Broker)
	name, attributes := messaging(send, broker, s.name)
	return s.tracing.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links(from)...),
		trace.WithAttributes(attributes...), trace.WithAttributes(semconv.MessagingOperationTypeSend, semconv.MessagingBatchMessageCount(len(ms))))
}

// failed records the errors of events that were not accepted, and the type of the first one.
func failed(span trace.Span, errs ...error) {
	err := errors.Join(errs...)
	if err == nil {
		return
	}
	span.RecordError(err)
	for _, one := range errs {
		if one != nil {
			span.SetAttributes(errorType(one))
			break
		}
	}
	span.SetStatus(codes.Error, err.Error())
}
