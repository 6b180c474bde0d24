package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/directive"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/verdict"
)

// undecided returns the release delay of a delivery whose transaction ended with an error. It is a
// minute if the source retries a failed handler, else one to two seconds.
func (c *Consumer) undecided(ctx context.Context, d pawl.Delivery, op string, err error) deliveryResult {
	if !c.away.Load() { // otherwise the outage is already known
		err = delivery.LockedTable(ctx, c.pool, err)
	}
	switch {
	case errors.As(err, new(leftToSource)):
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventRetryable, Op: "consumer.handle", Attempt: max(d.Receives, 1), Err: err})
		if a := directive.Of(err); a.What != "" {
			return deliveryResult{wait: a.Within()}
		}
		return deliveryResult{wait: time.Minute}
	case verdict.IsBusy(pawl.CodeOf(err)) && !errors.Is(err, delivery.ErrTableLocked), op == "consumer.trigger" && heldElsewhere(err):
		return c.conflict(ctx, d, err)
	case away(op, err):
		c.away.Store(true)
	}
	c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventError, Op: op, Err: err})
	return deliveryResult{wait: pace.Jittered(2 * time.Second)}
}

// heldElsewhere reports whether a trigger's error says that another attempt holds the row, or that
// a Sweeper took the row from this late one. The guard has already reported the latter.
func heldElsewhere(err error) bool {
	return errors.Is(err, pawl.ErrInProgress) || errors.Is(err, pawl.ErrFenceLost) && pawl.Swept(err)
}

// conflict releases a delivery whose intent is being processed right now, here or elsewhere. It is
// neither acknowledged nor dead-lettered (trap T12), because that attempt may still fail.
func (c *Consumer) conflict(ctx context.Context, d pawl.Delivery, err error) deliveryResult {
	c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventConflict, Op: "consumer.claim", Err: err})
	return deliveryResult{wait: pace.Jittered(2 * time.Second)}
}

// refused reports whether the database refuses a delivery for its content: an argument is out of
// bounds, or a type does not accept the data. Errors of the handler are outcomes, not asked here.
func refused(err error) bool {
	switch code := pawl.CodeOf(err); code {
	case pawl.CodeScopeInvalid, pawl.CodeKeyInvalid, pawl.CodeFingerprintInvalid, pawl.CodeArgumentInvalid:
		return true
	default:
		return code != "" && verdict.Of(code).Own == verdict.Failure
	}
}

// away reports whether an error means that the database is unavailable. A trigger's error is the
// user's, and counts only if the database was not reached or a whole table is locked. Any error of
// our own transaction counts, except lost races and errors about the delivery: see package verdict.
func away(op string, err error) bool {
	switch own := verdict.Of(pawl.CodeOf(err)).Own; {
	case pawl.Unreachable(err), pawl.MayHaveHappened(err), errors.Is(err, pawl.ErrSchemaMismatch), errors.Is(err, delivery.ErrTableLocked):
		return true
	case op == "consumer.trigger", errors.Is(err, context.Canceled):
		return false
	default:
		return own == verdict.Outage
	}
}
