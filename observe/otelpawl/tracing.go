package otelpawl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
)

// name is the name of the instrumentation.
const name = "github.com/pawl-go/pawl/observe/otelpawl"

// Tracing creates spans around handlers, named "process" and the destination, as OpenTelemetry's
// semantic conventions require. Each span links to the span in which the message was sent or the
// job was enqueued. For a single delivery or job, that span is also the parent. A batch has no
// parent. An error that the handler returns is recorded in the span, even one that only requests
// another attempt, as [job.Snooze] does.
type Tracing struct {
	tracer trace.Tracer
	from   pawl.Broker // broker of the deliveries; nil: unknown
}

const panicked = "panic"

// NewTracing returns a Tracing with a tracer of p. If p is nil, it uses the global provider.
func NewTracing(p trace.TracerProvider) *Tracing {
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return &Tracing{tracer: p.Tracer(name, trace.WithSchemaURL(semconv.SchemaURL))}
}

// From returns a Tracing for deliveries of source. If source is a [pawl.Broker], spans have its
// system and queue as messaging.system and messaging.destination.name. For package pawlsqs these
// are aws_sqs and the queue's name, and the span is named "process" and that name. Otherwise they
// are "pawl" and the name of the consumer.
func (t *Tracing) From(source pawl.Source) *Tracing {
	from, _ := source.(pawl.Broker)
	return &Tracing{tracer: t.tracer, from: from}
}

const (
	systemPawl = "pawl"
	process    = "process" // operation of a handler
	send       = "send"    // operation of a sink
)

// messaging returns the name of a span, and the attributes that name the destination. If the
// destination has no name, like RabbitMQ's default exchange, otherwise is used.
func messaging(operation string, broker pawl.Broker, otherwise string) (name string, attributes []attribute.KeyValue) {
	system, destination := systemPawl, otherwise
	if broker != nil {
		system, destination = broker.Broker()
	}
	destination = cmp.Or(destination, otherwise)
	return operation + " " + destination, []attribute.KeyValue{semconv.MessagingSystemKey.String(system), semconv.MessagingDestinationName(destination),
		semconv.MessagingOperationName(operation)}
}

// errorType returns Pawl's or the database's code, or else the type of the innermost error.
// error.type must have few values.
func errorType(err error) attribute.KeyValue {
	if code := pawl.CodeOf(err); code != "" {
		return semconv.ErrorTypeKey.String(string(code))
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return semconv.ErrorTypeKey.String(fmt.Sprintf("%T", err))
}

// Job returns the middleware for job.Config.
func (t *Tracing) Job() job.Middleware {
	return func(ctx context.Context, c job.Call, next func(context.Context) error) error {
		var s span
		s.name, s.attributes = messaging(process, nil, c.Jobs[0].Queue)
		s.attributes = append(s.attributes, attribute.String("pawl.job.kind", c.Kind))
		for _, j := range c.Jobs {
			s.from = append(s.from, j.Trace())
		}
		if len(c.Jobs) == 1 {
			s.attributes = append(s.attributes, semconv.MessagingMessageID(strconv.FormatInt(c.Jobs[0].ID, 10)),
				attribute.Int("pawl.attempt", c.Jobs[0].Attempt))
		}
		return t.around(ctx, s, next)
	}
}

// Consumer returns the middleware for consumer.Config. It creates a span for each call, at the
// first attempt of a delivery and at every retry.
func (t *Tracing) Consumer() consumer.Middleware {
	return func(ctx context.Context, c consumer.Call, next func(context.Context) error) error {
		return t.around(ctx, t.ofDeliveries(c.Consumer, c.Deliveries), next)
	}
}

// A span holds the data of a span before it starts.
type span struct {
	name       string
	from       []pawl.Trace // the traces that caused it
	attributes []attribute.KeyValue
}

func (t *Tracing) ofDeliveries(consumer string, ds []pawl.Delivery) span {
	var s span
	s.name, s.attributes = messaging(process, t.from, consumer)
	s.attributes = append(s.attributes, semconv.MessagingConsumerGroupName(consumer))
	for _, d := range ds {
		s.from = append(s.from, d.Trace())
	}
	if len(ds) == 1 {
		s.attributes = append(s.attributes, semconv.MessagingMessageID(ds[0].MessageID), attribute.Int("pawl.receives", ds[0].Receives))
	}
	return s
}

// around runs do inside the span.
func (t *Tracing) around(ctx context.Context, s span, do func(context.Context) error) error {
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(s.attributes...),
		trace.WithAttributes(semconv.MessagingOperationTypeProcess), trace.WithLinks(links(s.from)...)}
	switch {
	case len(s.from) > 1:
		options = append(options, trace.WithNewRoot(), trace.WithAttributes(semconv.MessagingBatchMessageCount(len(s.from))))
	case !s.from[0].Valid():
		// the span that runs the worker is not the cause of the job
		options = append(options, trace.WithNewRoot())
	default:
		ctx = extract(ctx, s.from[0])
	}
	ctx, span := t.tracer.Start(ctx, s.name, options...)
	defer span.End() // records a panic
	failed := panicked
	defer func() {
		if failed != "" {
			if failed == panicked {
				span.SetAttributes(semconv.ErrorTypeKey.String(panicked))
			}
			span.SetStatus(codes.Error, failed)
		}
	}()
	err := do(Inject(ctx))
	failed = ""
	if err != nil {
		failed = err.Error()
		span.RecordError(err)
		span.SetAttributes(errorType(err))
	}
	return err
}
