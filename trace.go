package pawl

import (
	"context"
	"regexp"
	"strings"
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
// parent it is the zero Trace: the recommendation lets a receiver ignore what it cannot parse. So it may a state; one of more than 512
// octets, or with others than those of printable ASCII, is left out.
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t.usable()
}

// Trace returns the trace of whoever sent the message, from its attributes traceparent and tracestate. Without a well-formed
// parent it is the zero Trace.
func (d Delivery) Trace() Trace {
	return Trace{Parent: d.Attributes["traceparent"], State: d.Attributes["tracestate"]}.usable()
}

// Valid reports whether the parent is well formed.
func (t Trace) Valid() bool { return traceParent.MatchString(t.Parent) }

// maxState is how many octets of a tracestate everybody should carry on, by the recommendation (tracestate limits). More, from whoever is first
// in the chain, would go into every row and message that follows.
const maxState = 512

// usable is what of t is carried on: nothing without a well-formed parent, and no state that is too long or not of printable ASCII,
// which a database or broker might refuse together with what it comes with.
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
