package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

// An invalidError means that a payload does not fit the type of the trigger.
type invalidError struct{ error }

func (e invalidError) Unwrap() error { return e.error }

// trigger calls the trigger and returns a disposition if the message may be acknowledged.
func (c *Consumer) trigger(ctx context.Context, d pawl.Delivery, leaveProcess func()) (disposition, error) {
	start, overdue := time.Now(), c.watch(ctx, leaveProcess)
	err := txn.Run(ctx, c.handler.Timeout, func(ctx context.Context) error { return c.handler.trigger(ctx, d) })
	overdue.Stop()
	event := pawl.Event{Kind: pawl.EventSucceeded, Op: "consumer.trigger", Err: err, Took: time.Since(start)}
	switch {
	case !rowHolds(err):
		return disposition{}, err
	case errors.Is(err, pawl.ErrAlreadyHandled), errors.Is(err, pawl.ErrInProgress):
		event.Kind = pawl.EventGuardAlreadyHandled
	case err != nil: // the row holds the error
		event.Kind = pawl.EventRetryable
		if pawl.IsFinal(errors.Unwrap(err)) {
			event.Kind = pawl.EventFailed
		}
	}
	return disposition{event: event}, nil
}

// brokeOff reports whether a trigger lost an established connection: its statement may be what
// takes the server down. A row of package guard counts its own losses.
func brokeOff(err error) bool {
	return pawl.Unreachable(err) && !errors.As(err, new(*pgconn.ConnectError)) && !txn.Lost(err)
}

// asFailedTrigger returns the item that stores a failed trigger's delivery for a retry.
func (c *Consumer) asFailedTrigger(d pawl.Delivery, why error) item {
	return item{Delivery: d, sent: d.Key, preset: c.failureDisposition(why), intent: c.storedTrigger(d)}
}

// storedTrigger returns the intent of a delivery whose trigger failed. Its key is derived from this
// very message, so a redelivery is stored once.
func (c *Consumer) storedTrigger(d pawl.Delivery) pawl.Intent {
	print := printOf(d)
	what := pawl.FingerprintOf([]byte(d.MessageID), print[:])
	return pawl.Intent{Scope: c.cfg.Name, Key: reservedPrefix + "trigger/" + what.String(), Fingerprint: print}
}

// rowHolds reports whether the row holds the outcome or will be processed again.
func rowHolds(err error) bool {
	return err == nil || errors.Is(err, pawl.ErrAlreadyHandled) || errors.Is(err, pawl.ErrFailureRecorded) ||
		errors.Is(err, pawl.ErrInProgress) && pawl.Swept(err)
}
