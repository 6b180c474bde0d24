package adapter

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
)

// A Reporter emits the events of one source. Hooks get them even if ctx has ended.
type Reporter struct {
	Hooks pawl.Hooks
	Scope string
}

// Emit emits an event.
func (r Reporter) Emit(ctx context.Context, e pawl.Event) {
	e.Scope = r.Scope
	r.Hooks.Emit(context.WithoutCancel(ctx), e)
}

// Count emits one event for n messages, and none if n is 0.
func (r Reporter) Count(ctx context.Context, kind pawl.EventKind, op string, n int) {
	if n > 0 {
		r.Emit(ctx, pawl.Event{Kind: kind, Op: op, Count: n})
	}
}

// Received reports what a Receive returned, and the age of the oldest delivery.
func (r Reporter) Received(ctx context.Context, op string, ds []pawl.Delivery) {
	if len(ds) == 0 {
		r.Emit(ctx, pawl.Event{Kind: pawl.EventEmptyReceive, Op: op})
		return
	}
	var age time.Duration
	for _, d := range ds {
		since := d.SentAt
		if since.IsZero() {
			since = d.ProducedAt
		}
		if !since.IsZero() {
			age = max(age, time.Since(since))
		}
	}
	r.Emit(ctx, pawl.Event{Kind: pawl.EventReceived, Op: op, Count: len(ds), Age: age})
}
