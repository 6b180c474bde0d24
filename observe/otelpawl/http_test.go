package otelpawl_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/job"
)

const (
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
)

// A command over HTTP is in its caller's trace, and so is the job that it enqueues. A replayed
// response is marked.
func TestTracing_HTTP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	acme := func(*http.Request) (string, error) { return "acme", nil }
	mux := http.NewServeMux()
	mux.Handle("POST /orders", b.tracing.HTTP(httpkey.Once(b.pool, acme, httpkey.Options{Hooks: quiet}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		if _, err := job.Enqueue(r.Context(), tx, job.Request{Queue: "mail", Kind: "receipt"}); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		return nil
	})))
	mux.Handle("POST /broken", b.tracing.HTTP(httpkey.Once(b.pool, acme, httpkey.Options{Name: "broken", Hooks: quiet}, func(http.ResponseWriter, *http.Request, pgx.Tx) error {
		return errors.New("no stock service")
	})))
	send := func(path string) int {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("shoes"))
		r.Header.Set("Idempotency-Key", `"key-1"`)
		r.Header.Set("Traceparent", "00-"+callerTrace+"-"+callerSpan+"-01")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	if first, second, third := send("/orders"), send("/orders"), send("/broken"); first != 201 || second != 201 || third != 500 {
		t.Fatalf("answered %d, %d, %d", first, second, third)
	}
	ran, broken := b.ended("POST /orders", 2), b.ended("POST /broken", 1)[0]
	for _, s := range append(ran, broken) {
		if s.SpanContext.TraceID().String() != callerTrace || s.Parent.SpanID().String() != callerSpan || s.SpanKind != trace.SpanKindServer {
			t.Errorf("%+v", s)
		}
	}
	var parent string
	b.must(b.pool.QueryRow(t.Context(), "select j.headers ->> 'traceparent' from pawl.job as j").Scan(&parent))
	if want := "00-" + callerTrace + "-" + ran[0].SpanContext.SpanID().String() + "-01"; parent != want {
		t.Errorf("the job is in %s, want %s", parent, want)
	}
	if attributeOf(ran[0], "pawl.replayed") != "" || attributeOf(ran[1], "pawl.replayed") != "true" ||
		attributeOf(ran[1], "http.response.status_code") != "201" || attributeOf(ran[1], "http.route") != "/orders" {
		t.Errorf("attributes %v and %v", ran[0].Attributes, ran[1].Attributes)
	}
	if broken.Status.Code != codes.Error || ran[0].Status.Code == codes.Error {
		t.Errorf("statuses %+v, %+v", broken.Status, ran[0].Status)
	}
	if attributeOf(broken, "error.type") != "500" || attributeOf(ran[0], "error.type") != "" {
		t.Errorf("error.type is %q, and %q of what went well", attributeOf(broken, "error.type"), attributeOf(ran[0], "error.type"))
	}
}

// A handler that panics or sends no response leaves a failed span.
func TestTracing_HTTP_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	func() {
		defer func() { _ = recover() }()
		b.tracing.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders", nil))
	}()
	s := b.ended("POST", 1)[0]
	if s.Status.Code != codes.Error || attributeOf(s, "error.type") != "no_response" {
		t.Errorf("%+v", s)
	}
}

// Behind a middleware that has started the server's span, ours is its child. An unknown method does
// not become a span name.
func TestTracing_HTTP_BehindAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, server := b.provider.Tracer("test").Start(t.Context(), "server")
	r := httptest.NewRequest("INVENTED", "/", nil).WithContext(ctx)
	r.Header.Set("Traceparent", "00-"+callerTrace+"-"+callerSpan+"-01")
	b.tracing.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) })).ServeHTTP(httptest.NewRecorder(), r)
	s := b.ended("_OTHER", 1)[0]
	b.wantParent(s.SpanContext, server.SpanContext(), s.Parent)
	if s.SpanKind != trace.SpanKindInternal || attributeOf(s, "http.response.status_code") != "200" {
		t.Errorf("%+v", s)
	}
}
