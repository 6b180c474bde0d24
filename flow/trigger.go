package flow

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

// A Trigger handles a message that names a row which exists: "process order 17". The row remembers, not the inbox, and the
// message is only what starts the work. Build it on package guard for a table of your own, or on [job.Worker.Process].
// A SemanticKey is not looked at: two messages that announce one row name it twice, and the row absorbs the second.
//
// nil means that the database holds the outcome: the message is acknowledged. So it is after [pawl.ErrAlreadyHandled], logged at
// debug, and [pawl.ErrFailureRecorded]: the row holds the error, and whoever sweeps the rows drives it again; and after
// [pawl.ErrInProgress] if the error is [pawl.Swept]. After any other error nothing is acknowledged, and the message comes again.
//
// [job.Worker.Process]: https://pkg.go.dev/github.com/pawl-go/pawl/job#Worker.Process
type Trigger func(ctx context.Context, d pawl.Delivery) error

// trigger calls the trigger, and reads from its answer whether the message may go.
func (f *Flow) trigger(ctx context.Context, d pawl.Delivery) (pawl.Receipt, time.Duration) {
	leave, err := f.enter(ctx)
	if err != nil {
		return pawl.Receipt{}, 0 // stopping
	}
	defer leave()
	start, overdue := time.Now(), f.watch(ctx, leave)
	err = txn.Run(ctx, f.cfg.Timeout, func(ctx context.Context) error { return f.cfg.Trigger(ctx, d) })
	overdue.Stop()
	event := pawl.Event{Op: "flow.trigger", Err: err, Took: time.Since(start)}
	switch {
	case err == nil:
		event.Kind = pawl.EventFresh
	case errors.Is(err, pawl.ErrAlreadyHandled), errors.Is(err, pawl.ErrInProgress) && pawl.Swept(err):
		event.Kind = pawl.EventGuardHandled
	case errors.Is(err, pawl.ErrFailureRecorded):
		event.Kind = pawl.EventRetryable
		if pawl.IsFinal(errors.Unwrap(err)) { // what the row holds
			event.Kind = pawl.EventFinal
		}
	case errors.Is(err, pawl.ErrInProgress):
		return f.conflict(ctx, d, err)
	default:
		return f.undecided(ctx, d, "flow.trigger", err)
	}
	f.emitOf(ctx, d, event)
	return answered(d), 0
}
