package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

// A SequenceGate lets deliveries take effect in the order of their senders' numbers. Unlike an
// ordering key, it knows which numbers are missing and which came late.
type SequenceGate struct {
	// Mode decides about late and early deliveries. Required.
	Mode GateMode
	// Of returns a delivery's resource, up to 255 octets, and its number there. A delivery with the
	// resource "" passes. One with an error becomes a dead letter. Required.
	Of func(pawl.Delivery) (resource string, seq int64, err error)
	// First is the first number at a strict gate. Without it, a new gate passes no delivery until
	// an operator sets the first number (pawl_v1.sequence_gate_reset).
	First *int64
	// HoldLimit is how many deliveries one strict gate holds. Further early deliveries become dead
	// letters; if an operator retries one, it is held. Default 1000, at most 1,000,000.
	HoldLimit int
	// HoldTimeout is how long a delivery is held before event gap asks an operator to look. The
	// delivery stays held. Default 5 min.
	HoldTimeout time.Duration
}

// A GateMode says which numbers a [SequenceGate] lets pass.
type GateMode string

const (
	// GateLatest passes each number above the last one that took effect, and drops the rest. Use it
	// for messages that carry the whole state.
	GateLatest GateMode = "latest"
	// GateStrict passes only the next number. It holds early deliveries and drops repeated ones.
	GateStrict GateMode = "strict"
)

// A claimError is an error of the query to the gate or for the semantic key, not of the handler.
type claimError struct{ error }

func (e claimError) Unwrap() error { return e.error }

// passGate asks the gate, and calls the handler if the delivery may pass. A delivery whose semantic
// key took effect before also passes the gate, so that the next number can.
func (c *Consumer) passGate(ctx context.Context, tx pgx.Tx, it item) (p admitted, err error) {
	var next *int64
	if it.sequence != nil {
		if p.admission, next, err = delivery.Pass(ctx, tx, *it.sequence); err != nil {
			return admitted{}, claimError{err}
		}
		if p.next = next; p.admission != delivery.Passed {
			return p, nil
		}
	}
	p, err = c.unlessRepeated(ctx, tx, it.Delivery, it.intent.Key, func() error { return c.handler.tx(ctx, tx, []pawl.Delivery{it.Delivery}) })
	p.next = next
	return p, err
}

// refusedDisposition returns the disposition of a delivery whose handler was not called. The gate
// stays locked until the transaction ends.
func (c *Consumer) refusedDisposition(ctx context.Context, tx pgx.Tx, it item, p admitted) (*disposition, error) {
	switch p.admission {
	case repeated:
		disp := duplicateDisposition("consumer.semantic", p.first)
		// The delivery passed its gate, and that must be committed. COMMIT waits for the standbys.
		if it.sequence != nil {
			disp.rollback, disp.readOn = false, ""
		}
		return disp, nil
	case delivery.Stale: // the delivery was seen, so its inbox row stays
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
			fmt.Errorf("the gate of %s holds HoldLimit deliveries, and a number before %d is missing", it.sequence.Resource, it.sequence.Seq)), nil
	}
	disp := c.untriedDisposition(pawl.EventHeld)
	// In its lane it would block the deliveries that it waits for.
	disp.store.RetryIn, disp.store.Outside = c.handler.gate.HoldTimeout, true
	disp.held, disp.event.Op = true, "consumer.sequence_gate"
	return disp, nil
}
