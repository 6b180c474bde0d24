package otelpawl_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/observe/otelpawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// One trace covers a producer's span, the message in SQS, the delivery's handler, the job that it
// enqueues, the job's handler, and that handler's call to another service. The first attempt of the
// delivery fails. Its retry, from the database, is in the trace too, and it enqueues the job.
func TestTracing_OneTraceAcrossBrokerJobAndCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var called atomic.Value
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called.Store(trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header))))
	}))
	t.Cleanup(other.Close)
	client := &http.Client{Transport: otelpawl.Transport(nil)}
	b.work("mail", job.Handle("receipt", func(ctx context.Context, _ job.Task[string]) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, other.URL, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}))

	queue := b.queue("orders")
	source, err := pawlsqs.Open(t.Context(), queue, "orders", pawlsqs.Config{Wait: time.Second, Hooks: quiet})
	b.must(err)
	var tries atomic.Int32
	f, err := consumer.New(b.pool, consumer.Config{Name: "billing", Source: source, Middleware: []consumer.Middleware{b.tracing.From(source).Consumer()}, Concurrency: 2, RetryConcurrency: 1, Hooks: quiet,
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
			if tries.Add(1) == 1 {
				return errors.New("not yet")
			}
			_, err := job.Enqueue(ctx, tx, job.Request{Queue: "mail", Kind: "receipt", Value: d.Key})
			return err
		}).With(consumer.TxPolicy{Policy: consumer.Policy{Backoff: job.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}}})})
	b.must(err)
	b.run(f.Run)

	sender, err := pawlsqs.OpenSender(t.Context(), queue, "orders", "")
	b.must(err)
	ctx, publish := b.provider.Tracer("test").Start(t.Context(), "publish")
	b.must(sender.Send(otelpawl.Inject(ctx), pawlsqs.Message{Key: "order-17", Payload: []byte("b")}))
	publish.End()

	handled, mailed := b.ended("process orders", 2), b.ended("process mail", 1)[0]
	first, retry := handled[0], handled[1]
	b.wantParent(first.SpanContext, publish.SpanContext(), first.Parent)
	b.wantParent(retry.SpanContext, publish.SpanContext(), retry.Parent)
	b.wantParent(mailed.SpanContext, retry.SpanContext, mailed.Parent)
	b.wantLink(first, publish.SpanContext())
	b.wantLink(retry, publish.SpanContext())
	b.wantLink(mailed, retry.SpanContext)
	if got, _ := called.Load().(trace.SpanContext); got.SpanID() != mailed.SpanContext.SpanID() || got.TraceID() != publish.SpanContext().TraceID() {
		t.Errorf("the call came in trace %v from span %v, want %v from %v", got.TraceID(), got.SpanID(), publish.SpanContext().TraceID(), mailed.SpanContext.SpanID())
	}
	if first.Status.Code != codes.Error || first.Status.Description != "not yet" || retry.Status.Code == codes.Error {
		t.Errorf("the tries ended %+v and %+v", first.Status, retry.Status)
	}
	if attributeOf(first, "error.type") != "*errors.errorString" || attributeOf(retry, "error.type") != "" {
		t.Errorf("error.type is %q, then %q", attributeOf(first, "error.type"), attributeOf(retry, "error.type"))
	}
	for _, s := range handled { // also the retry, which comes from the database
		b.wantNamedByItsAttributes(s)
		if attributeOf(s, "messaging.system") != "aws_sqs" || attributeOf(s, "messaging.destination.name") != "orders" ||
			attributeOf(s, "messaging.consumer.group.name") != "billing" {
			t.Errorf("attributes %v", s.Attributes)
		}
	}
	if !first.Parent.IsRemote() || !mailed.Parent.IsRemote() || mailed.SpanKind != trace.SpanKindConsumer {
		t.Errorf("%+v", mailed)
	}
	if attributeOf(mailed, "messaging.destination.name") != "mail" || attributeOf(mailed, "pawl.job.kind") != "receipt" || attributeOf(mailed, "pawl.attempt") != "1" {
		t.Errorf("attributes %v", mailed.Attributes)
	}
}

func (b *bed) queue(name string) *awssqs.Client {
	b.Helper()
	client := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.test"), HTTPClient: sqstest.New(sqstest.Options{}),
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	_, err := client.CreateQueue(b.Context(), &awssqs.CreateQueueInput{QueueName: &name})
	b.must(err)
	return client
}

// A batch of jobs from several traces has a trace of its own, with a link to each.
func TestTracing_LinksABatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := map[trace.SpanID]bool{}
	for range 3 {
		ctx, span := b.provider.Tracer("test").Start(t.Context(), "publish")
		_, err := job.Enqueue(otelpawl.Inject(ctx), b.pool, job.Request{Queue: "search", Kind: "index"})
		b.must(err)
		span.End()
		want[span.SpanContext().SpanID()] = true
	}
	// in no trace
	_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "search", Kind: "index"})
	b.must(err)
	b.work("search", job.HandleManyTx("index", func(context.Context, pgx.Tx, []job.Task[[]byte]) error { return nil }))
	s := b.ended("process search", 1)[0]
	for _, l := range s.Links {
		delete(want, l.SpanContext.SpanID())
	}
	if s.Parent.IsValid() || len(s.Links) != 3 || len(want) > 0 || attributeOf(s, "messaging.batch.message_count") != "4" {
		t.Errorf("parent %v, links %v, attributes %v", s.Parent, s.Links, s.Attributes)
	}
}

// A job without a trace starts a new one, even if the worker was started inside a span. A panic is
// an error of its span.
func TestTracing_WithoutASender(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, span := b.provider.Tracer("test").Start(t.Context(), "main")
	defer span.End()
	around := b.tracing.Job()
	panicked := func() (cause any) {
		defer func() { cause = recover() }()
		_ = around(ctx, job.Call{Kind: "k", Jobs: []job.Job{{ID: 1, Queue: "q"}}}, func(context.Context) error { panic("index out of range") })
		return nil
	}()
	s := b.ended("process q", 1)[0]
	if panicked == nil || s.Parent.IsValid() || s.Status.Code != codes.Error || len(s.Events) != 1 || attributeOf(s, "error.type") != "panic" {
		t.Errorf("%v: %+v", panicked, s)
	}
}

// Events of an outbox keep the trace in which they were appended. The relay's span links to them.
func TestTracing_Sink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var passed []pawl.Message
	sink := b.tracing.Sink("main", sinkFunc(func(_ context.Context, ms []pawl.Message) []error {
		passed = ms
		return []error{nil, &pawl.Error{Op: "x", Code: pawl.CodeArgumentInvalid}}
	}))
	errs := sink.Publish(t.Context(), []pawl.Message{{ID: "1", Headers: map[string]string{"traceparent": parent}}, {ID: "2"}})
	s := b.ended("send main", 1)[0]
	if len(errs) != 2 || passed[0].Headers["traceparent"] != parent || len(s.Links) != 1 || s.Links[0].SpanContext.SpanID().String() != "00f067aa0ba902b7" || s.Status.Code != codes.Error ||
		attributeOf(s, "error.type") != "P4004" || attributeOf(s, "messaging.destination.name") != "main" {
		t.Errorf("%v, %+v", errs, s)
	}
}

// A traced sink keeps its Carries method, and its span names the broker.
func TestTracing_SinkOfABroker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sink, err := pawlsqs.OpenSink(t.Context(), b.queue("orders"), "orders", pawlsqs.SinkConfig{})
	b.must(err)
	traced := b.tracing.Sink("main", sink)
	carrier, is := traced.(pawl.Carrier)
	if !is || carrier.Carries(pawl.Message{ID: "1", Payload: []byte{0xff}}) == nil || carrier.Carries(pawl.Message{ID: "1", Payload: []byte("b")}) != nil {
		t.Error("what the sink can carry is lost")
	}
	if _, is := b.tracing.Sink("main", sinkFunc(nil)).(pawl.Carrier); is {
		t.Error("a sink without Carries has it when it is traced")
	}
	b.must(errors.Join(traced.Publish(t.Context(), []pawl.Message{{ID: "1", Payload: []byte("b")}})...))
	s := b.ended("send orders", 1)[0]
	if attributeOf(s, "messaging.system") != "aws_sqs" || attributeOf(s, "messaging.destination.name") != "orders" {
		t.Errorf("attributes %v", s.Attributes)
	}
	b.wantNamedByItsAttributes(s)
}

// A span is named after its destination, with or without a broker's name, for one delivery and for
// several.
func TestTracing_NamesSpansByTheirDestination(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	sent := pawl.Delivery{MessageID: "1", Attributes: map[string]string{"traceparent": parent}}
	for source, want := range map[pawl.Source]string{nil: "billing", brokerOf("orders"): "orders", brokerOf(""): "billing"} {
		for _, ds := range [][]pawl.Delivery{{sent}, {sent, sent}, {{MessageID: "2"}}} {
			b.exporter.Reset()
			around := b.tracing.From(source).Consumer()
			b.must(around(t.Context(), consumer.Call{Consumer: "billing", Deliveries: ds}, func(context.Context) error { return nil }))
			spans := b.exporter.GetSpans()
			if len(spans) != 1 || spans[0].Name != "process "+want {
				t.Fatalf("got the spans %+v, want one named process %s", spans, want)
			}
			s := spans[0]
			b.wantNamedByItsAttributes(s)
			links := len(ds)
			if ds[0].MessageID == "2" {
				links = 0 // it was sent in no trace
			}
			if len(s.Links) != links {
				t.Errorf("%d deliveries, %d links", len(ds), len(s.Links))
			}
		}
	}
}

// A brokerOf is a source that names its broker and receives nothing.
type brokerOf string

func (brokerOf) Receive(context.Context, int) ([]pawl.Delivery, error)          { return nil, nil }
func (brokerOf) Ack(context.Context, ...pawl.Receipt) error                     { return nil }
func (brokerOf) Release(context.Context, time.Duration, ...pawl.Delivery) error { return nil }
func (brokerOf) Info() pawl.SourceInfo                                          { return pawl.SourceInfo{} }
func (b brokerOf) Broker() (system, destination string)                         { return "rabbitmq", string(b) }

// A sink that publishes batches still does when it is traced, with a span for each run, and keeps
// its Carries method.
func TestTracing_SinkThatTakesRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	full := errors.New("the partition is full")
	log := batchFunc{sinkFunc(nil), func(ms []pawl.Message) (int, error) { return min(len(ms), 2), full }}
	traced := b.tracing.Sink("main", log).(pawl.BatchSink)
	if _, is := traced.(pawl.Carrier); is {
		t.Error("a sink without Carries has it when it is traced")
	}
	ms := []pawl.Message{{ID: "1"}, {ID: "2"}, {ID: "3"}}
	for _, n := range []int{2, 3} {
		accepted, err := traced.PublishBatch(t.Context(), ms[:n])
		if accepted != 2 || !errors.Is(err, full) {
			t.Errorf("of %d accepted %d, %v", n, accepted, err)
		}
	}
	spans := b.ended("send main", 2)
	if spans[0].Status.Code != codes.Unset || spans[1].Status.Code != codes.Error || attributeOf(spans[1], "messaging.batch.message_count") != "3" {
		t.Errorf("spans %+v", spans)
	}
	both, is := b.tracing.Sink("main", carryingBatches{log}).(pawl.Carrier)
	if _, takesBatches := both.(pawl.BatchSink); !is || !takesBatches || both.Carries(ms[0]) == nil {
		t.Error("what the sink can carry, or that it takes batches, is lost")
	}
}

type batchFunc struct {
	sinkFunc
	publish func([]pawl.Message) (int, error)
}

func (f batchFunc) PublishBatch(_ context.Context, ms []pawl.Message) (int, error) {
	return f.publish(ms)
}

type carryingBatches struct{ batchFunc }

func (carryingBatches) Carries(pawl.Message) error { return errors.New("it does not fit") }

type sinkFunc func(context.Context, []pawl.Message) []error

func (f sinkFunc) Publish(ctx context.Context, ms []pawl.Message) []error { return f(ctx, ms) }
