package pawl

import (
	"context"
	"regexp"
)

// A Trace is the position of a request in a distributed trace, as the W3C Trace Context headers spell it
// (https://www.w3.org/TR/trace-context/). It travels with a job in its headers traceparent and tracestate, with a message in
// the attributes of these names.
type Trace struct{ Parent, State string }

type traceKey struct{}

// WithTrace returns a context whose enqueued jobs, appended events and sent messages carry t.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the trace of ctx: in a handler, that of whoever enqueued the job or sent the message. Without a well-formed
// parent it is the zero Trace: the recommendation lets a receiver ignore what it cannot parse.
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t.orNone()
}

// Trace returns the trace of whoever sent the message, from its attributes traceparent and tracestate. Without a well-formed
// parent it is the zero Trace.
func (d Delivery) Trace() Trace {
	return Trace{Parent: d.Attributes["traceparent"], State: d.Attributes["tracestate"]}.orNone()
}

// Valid reports whether the parent is well formed.
func (t Trace) Valid() bool { return traceParent.MatchString(t.Parent) }

func (t Trace) orNone() Trace {
	if !t.Valid() {
		return Trace{}
	}
	return t
}

var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
