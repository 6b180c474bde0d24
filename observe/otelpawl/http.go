package otelpawl

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// HTTP returns next with a span around each request, for the handlers of command/httpkey. The span
// covers claim, handler, COMMIT and response. If a middleware such as otelhttp has started a span,
// that is the parent. Otherwise the parent is the caller's span, from traceparent. A replayed
// response has the attribute pawl.replayed.
func (t *Tracing) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, kind := r.Context(), trace.SpanKindInternal
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx, kind = w3c.Extract(ctx, propagation.HeaderCarrier(r.Header)), trace.SpanKindServer
		}
		method := methodOf(r)
		options := []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method))}
		called := method
		if _, route, found := strings.Cut(r.Pattern, "/"); found {
			options = append(options, trace.WithAttributes(semconv.HTTPRoute("/"+route)))
			called += " /" + route
		}
		ctx, span := t.tracer.Start(ctx, called, options...)
		defer span.End()
		response := &statusWriter{ResponseWriter: w}
		defer response.tell(span)
		next.ServeHTTP(response, r.WithContext(Inject(ctx)))
	})
}

// methodOf returns a method of RFC 9110 or PATCH, or "_OTHER", because clients may send any word.
func methodOf(r *http.Request) string {
	known := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace}
	if slices.Contains(known, r.Method) {
		return r.Method
	}
	return "_OTHER"
}

// statusWriter records the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (a *statusWriter) WriteHeader(status int) {
	if a.status < 200 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *statusWriter) Write(b []byte) (int, error) {
	if a.status < 200 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (a *statusWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *statusWriter) tell(span trace.Span) {
	switch {
	case a.status == 0:
		span.SetStatus(codes.Error, "no response")
		span.SetAttributes(semconv.ErrorTypeKey.String("no_response"))
		return
	case a.status >= 500:
		span.SetStatus(codes.Error, http.StatusText(a.status))
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(a.status)))
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(a.status))
	if a.Header().Get("Idempotent-Replayed") == "true" {
		span.SetAttributes(attribute.Bool("pawl.replayed", true))
	}
}
