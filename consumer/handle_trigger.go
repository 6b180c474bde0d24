package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

// An invalidError means that a payload does not decode into the type of the trigger's messages.
type invalidError struct{ error }

func (e invalidError) Unwrap() error { return e.error }

// trigger calls the user's function. If the message may be acknowledged, it returns the
// disposition, else the function's error. leaveProcess ends the delivery's stay in the isolator of
// package solo.
func (c *Consumer) trigger(ctx context.Context, d pawl.Delivery, leaveProcess func()) (disposition, error) {
	start, overdue := time.Now(), c.watch(ctx, leaveProcess)
	err := txn.Run(ctx, c.handler.Timeout, func(ctx context.Context) error {
		defer c.running.enter(d)()
		return c.handler.trigger(ctx, d)
	})
	overdue.Stop()
	event := pawl.Event{Kind: pawl.EventSucceeded, Op: "consumer.trigger", Err: err, Took: time.Since(start)}
	switch {
	case !rowHolds(err):
		return disposition{}, err
	case errors.Is(err, pawl.ErrAlreadyHandled), errors.Is(err, pawl.ErrInProgress):
		event.Kind = pawl.EventGuardAlreadyHandled
	case err != nil: // ErrFailureRecorded, around the error that the row holds
		event.Kind = pawl.EventRetryable
		if pawl.IsFinal(errors.Unwrap(err)) {
			event.Kind = pawl.EventFailed
		}
	}
	return disposition{event: event}, nil
}

// brokeOff reports whether a trigger lost an established connection, for which it is charged: its
// statement may take the server down. Losses that package guard has counted (txn.Lost) are not
// charged again.
func brokeOff(err error) bool {
	return pawl.Unreachable(err) && !errors.As(err, new(*pgconn.ConnectError)) && !txn.Lost(err)
}

// asFailedTrigger returns a delivery whose trigger failed, ready to be stored for a retry.
func (c *Consumer) asFailedTrigger(d pawl.Delivery, why error) item {
	return item{Delivery: d, sent: d.Key, preset: c.failureDisposition(why), intent: c.storedTrigger(d)}
}

// storedTrigger returns the intent of a delivery whose trigger failed. Its key is a hash of
// MessageID and payload. If the source redelivers the message, it finds the key and is not stored
// again.
func (c *Consumer) storedTrigger(d pawl.Delivery) pawl.Intent {
	print := printOf(d)
	what := pawl.FingerprintOf([]byte(d.MessageID), print[:])
	return pawl.Intent{Scope: c.cfg.Name, Key: reservedPrefix + "trigger/" + what.String(), Fingerprint: print}
}

// rowHolds reports whether the message is no longer needed: the user's row holds the outcome or the
// error, or a sweeper will take over the row that another process works on.
func rowHolds(err error) bool {
	return err == nil || errors.Is(err, pawl.ErrAlreadyHandled) || errors.Is(err, pawl.ErrFailureRecorded) ||
		(errors.Is(err, pawl.ErrInProgress) && pawl.Swept(err))
}
