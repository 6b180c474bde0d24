package pawl

import (
	"context"
	"regexp"
	"strings"
)

// A Trace is the position of a request in a distributed trace, as in the W3C Trace Context headers
// (https://www.w3.org/TR/trace-context/). A job carries it in its headers traceparent and
// tracestate, a message in the attributes of these names.
type Trace struct{ Parent, State string }

type traceKey struct{}

// WithTrace returns a context whose enqueued jobs, appended events and sent messages carry t.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the trace of ctx: in a handler, that of the caller that enqueued the job or sent
// the message. Without a well-formed parent it is the zero Trace, as W3C allows. A state over 512
// octets, or with characters other than printable ASCII, is left out.
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t.usable()
}

// Trace returns the sender's trace, from the attributes traceparent and tracestate. Without a
// well-formed parent it is the zero Trace.
func (d Delivery) Trace() Trace {
	return Trace{Parent: d.Attributes["traceparent"], State: d.Attributes["tracestate"]}.usable()
}

// Valid reports whether the parent is well formed.
func (t Trace) Valid() bool { return traceParent.MatchString(t.Parent) }

// maxState is how many octets of a tracestate a system should propagate (W3C Trace Context,
// tracestate limits). A longer one would go into every later row and message.
const maxState = 512

// usable returns the part of t that is propagated. A database or broker might refuse a state that
// is too long or not printable ASCII, together with its row or message.
func (t Trace) usable() Trace {
	if !t.Valid() {
		return Trace{}
	}
	if len(t.State) > maxState || strings.ContainsFunc(t.State, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.State = ""
	}
	return t
}

var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
