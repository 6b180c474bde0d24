package flow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/job"
)

// A Gate lets deliveries take effect in the order of numbers that their senders gave them. It does what an ordering key cannot: it
// knows what is missing and what came late.
type Gate struct {
	// Mode: [inbox.Latest] drops what comes late, [inbox.Strict] also holds what comes early. Required.
	Mode inbox.GateMode
	// Of names a delivery's resource and its number there. "" as the resource lets it pass. An error makes it a dead letter.
	// Required.
	Of func(pawl.Delivery) (resource string, seq int64, err error)
	// First is the number that comes first at a strict gate. Without it a new gate lets nobody pass until an operator has said where
	// to begin (pawl_v1.gate_reset).
	First *int64
	// HoldLimit is how many deliveries one strict gate holds; what comes early beyond becomes a dead letter, and is held if
	// somebody retries it. Default 1000, at most 1,000,000.
	HoldLimit int
	// HoldTimeout is how long a delivery is held before event gap says that somebody should look. It stays held. Default 5 min.
	HoldTimeout time.Duration
}

func (c *Config) completeGate() error {
	g := c.Gate
	if g == nil {
		return nil
	}
	complete := *g
	switch {
	case g.Of == nil || g.Mode != inbox.Latest && g.Mode != inbox.Strict:
		return errors.New("a Gate needs the field Of, and the Mode Latest or Strict")
	case c.BatchHandler != nil || c.Handler == nil || c.Mode != Inline:
		return errors.New("a Gate goes with Handler, and the Mode Inline")
	case g.HoldLimit < 0 || g.HoldLimit > 1_000_000:
		return fmt.Errorf("the HoldLimit must lie between 1 and 1000000, it is %d", g.HoldLimit)
	}
	if g.HoldTimeout <= 0 {
		complete.HoldTimeout = 5 * time.Minute
	}
	c.Gate = &complete
	return nil
}

// turn is a delivery's number at its gate; nil if it has none.
func (c *Config) turn(d pawl.Delivery) (*inbox.Turn, error) {
	if c.Gate == nil {
		return nil, nil
	}
	resource, seq, err := c.Gate.Of(d)
	if err != nil {
		return nil, &pawl.Error{Op: "flow.gate", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	if resource == "" {
		return nil, nil
	}
	probe := pawl.Intent{Scope: resource, Key: "any", Fingerprint: pawl.FingerprintOf()}
	return &inbox.Turn{Consumer: c.Consumer, Resource: resource, Seq: seq, Mode: c.Gate.Mode, First: c.Gate.First, HoldLimit: c.Gate.HoldLimit},
		probe.Validate()
}

// A claimError is what asking the gate, or for the semantic key, ended with: not the handler's failure.
type claimError struct{ error }

func (e claimError) Unwrap() error { return e.error }

// gated asks the gate, and calls fn if the delivery may pass. A delivery that is repeated passes, so that the next number can.
func (f *Flow) gated(ctx context.Context, tx pgx.Tx, it item) (p passage, err error) {
	var next *int64
	if it.turn != nil {
		if p.verdict, next, err = inbox.Pass(ctx, tx, *it.turn); err != nil {
			return passage{}, claimError{err}
		}
		if p.next = next; p.verdict != inbox.Passed {
			return p, nil
		}
	}
	p, err = f.unlessRepeated(ctx, tx, it.Delivery, it.intent.Key, func() error { return f.cfg.Handler(ctx, tx, it.Delivery) })
	p.next = next
	return p, err
}

// notPassed does what the gate said with a delivery whose handler was not entered, in the transaction that claimed it and holds
// the gate.
func (f *Flow) notPassed(ctx context.Context, tx *txn.Opened, claim inbox.Claim, it item, p passage) (pawl.Receipt, error) {
	switch p.verdict {
	case repeated:
		if it.turn == nil {
			return f.absorb(ctx, tx, it.Delivery, p.first), nil
		}
		if err := f.commit(ctx, tx, it); err != nil { // it passed its gate, which stays passed
			return pawl.Receipt{}, err
		}
		p.first.Unproved = false // this COMMIT has waited
		return f.duplicate(ctx, it.Delivery, "flow.semantic", p.first), nil
	case inbox.Stale: // its inbox row stays: it was seen
		first, took, err := f.tookEffect(ctx, tx, it)
		if err != nil {
			return pawl.Receipt{}, err
		}
		if took {
			return f.absorb(ctx, tx, it.Delivery, first), nil
		}
		if err := f.commit(ctx, tx, it); err != nil {
			return pawl.Receipt{}, err
		}
		f.emitOf(ctx, it.Delivery, pawl.Event{Kind: pawl.EventSuperseded, Op: "flow.gate"})
		return answered(it.Delivery), nil
	case inbox.Full:
		l, why := f.untried(), fmt.Errorf("the gate of %s holds as many as it may, and what comes before number %d is missing", it.turn.Resource, it.turn.Seq)
		l.Dead, l.Outside, l.Failure = true, true, why
		return f.landIn(ctx, tx, claim, it, l, pawl.EventGap, why)
	}
	l := f.untried()
	l.RetryIn, l.Outside = f.cfg.Gate.HoldTimeout, true // in its lane it would stop those whom it waits for
	jobID, err := f.landRow(ctx, tx, claim, it, l)
	if err != nil {
		return pawl.Receipt{}, err
	}
	if err := inbox.Hold(ctx, tx, *it.turn, jobID); err != nil {
		return pawl.Receipt{}, err
	}
	if err := txn.Commit(ctx, "flow.land", tx); err != nil {
		return pawl.Receipt{}, err
	}
	f.emitOf(ctx, it.Delivery, pawl.Event{Kind: pawl.EventHeld, Op: "flow.gate", JobID: jobID})
	return answered(it.Delivery), nil
}

// retryGated is what becomes of a landed delivery behind its gate, if there is one: passed, it is handled; stale, it is done; early, it waits, also beyond
// the limit, since it is stored already. As a rule it comes here because whoever was before it has made it due.
func (f *Flow) retryGated(ctx context.Context, tx pgx.Tx, j job.Job, d pawl.Delivery) error {
	turn, err := f.cfg.turn(d)
	if err != nil {
		return pawl.Final(err)
	}
	it := item{Delivery: d, turn: turn, intent: pawl.Intent{Key: text(j.Headers, headerInboxKey)}}
	p, err := f.gated(ctx, tx, it)
	switch {
	case pawl.CodeOf(err) == lockNotHad && errors.As(err, new(claimError)):
		return job.Snooze(jittered(time.Second))
	case err != nil || p.verdict == inbox.Passed:
		return err
	case p.verdict == repeated:
		f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: "flow.semantic", JobID: j.ID})
		return nil
	case p.verdict == inbox.Stale:
		f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventSuperseded, Op: "flow.gate", JobID: j.ID})
		return nil
	}
	waited := time.Since(j.CreatedAt)
	if waited >= f.cfg.Gate.HoldTimeout && (p.next == nil || *p.next >= turn.Seq) {
		f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventGap, Op: "flow.gate", JobID: j.ID,
			Err: fmt.Errorf("number %d of %s is the first that waits, for %v", turn.Seq, turn.Resource, waited.Round(time.Second))})
	}
	_, err = inbox.HoldAgain(ctx, tx, *turn, it.intent.Key, j.ID, f.cfg.Gate.HoldTimeout)
	return err
}
