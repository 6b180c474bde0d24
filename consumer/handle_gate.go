package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

// A SequenceGate lets deliveries take effect in the order of numbers that their senders gave them. It does what an ordering key cannot: it
// knows what is missing and what came late.
type SequenceGate struct {
	// Mode: [GateLatest] drops what comes late, [GateStrict] also holds what comes early. Required.
	Mode GateMode
	// Of names a delivery's resource and its number there. "" as the resource lets it pass. An error makes it a dead letter.
	// Required.
	Of func(pawl.Delivery) (resource string, seq int64, err error)
	// First is the number that comes first at a strict gate. Without it a new gate lets nothing pass until an operator has said where
	// to begin (pawl_v1.sequence_gate_reset).
	First *int64
	// HoldLimit is how many deliveries one strict gate holds; what comes early beyond becomes a dead letter, and is held if
	// an operator retries it. Default 1000, at most 1,000,000.
	HoldLimit int
	// HoldTimeout is how long a delivery is held before event gap asks an operator to look. It stays held. Default 5 min.
	HoldTimeout time.Duration
}

// A GateMode says which numbers a sequence gate lets pass.
type GateMode string

const (
	// GateLatest lets pass whatever is newer than what took effect last, and drops the rest: for
	// messages that carry the whole state.
	GateLatest GateMode = "latest"
	// GateStrict lets pass the next number only: it holds what comes early and drops what comes again.
	GateStrict GateMode = "strict"
)

// A claimError is what asking the gate, or for the semantic key, ended with: not the handler's failure.
type claimError struct{ error }

func (e claimError) Unwrap() error { return e.error }

// passGate asks the gate, and calls fn if the delivery may pass. A delivery that is repeated passes, so that the next number can.
func (c *Consumer) passGate(ctx context.Context, tx pgx.Tx, it item) (p gateAnswer, err error) {
	var next *int64
	if it.sequence != nil {
		if p.admission, next, err = delivery.Pass(ctx, tx, *it.sequence); err != nil {
			return gateAnswer{}, claimError{err}
		}
		if p.next = next; p.admission != delivery.Passed {
			return p, nil
		}
	}
	p, err = c.unlessRepeated(ctx, tx, it.Delivery, it.intent.Key, func() error { return c.handler.tx(ctx, tx, []pawl.Delivery{it.Delivery}) })
	p.next = next
	return p, err
}

// refusedDisposition says how the transaction of a delivery ends whose handler was not entered. It holds the gate until then.
func (c *Consumer) refusedDisposition(ctx context.Context, tx pgx.Tx, it item, p gateAnswer) (*disposition, error) {
	switch p.admission {
	case repeated:
		disp := duplicateDisposition("consumer.semantic", p.first)
		if it.sequence != nil { // it passed its gate, which stays passed: this COMMIT waits for the standbys
			disp.rollback, disp.readOn = false, ""
		}
		return disp, nil
	case delivery.Stale: // its inbox row stays: it was seen
		first, took, err := c.semanticDuplicate(ctx, tx, it)
		switch {
		case err != nil:
			return nil, err
		case took:
			return duplicateDisposition("consumer.semantic", first), nil
		}
		return &disposition{event: pawl.Event{Kind: pawl.EventSuperseded, Op: "consumer.sequence_gate"}}, nil
	case delivery.Full:
		return c.deadOutsideLane(pawl.EventGap,
			fmt.Errorf("the gate of %s holds as many as it may, and what comes before number %d is missing", it.sequence.Resource, it.sequence.Seq)), nil
	}
	disp := c.untriedDisposition(pawl.EventHeld)
	disp.store.RetryIn, disp.store.Outside = c.handler.gate.HoldTimeout, true // in its lane it would stop those whom it waits for
	disp.held, disp.event.Op = true, "consumer.sequence_gate"
	return disp, nil
}
