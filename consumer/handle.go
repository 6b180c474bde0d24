package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/directive"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/txn"
)

// handle runs your code behind a savepoint and returns how the transaction ends. After an error of
// the code the claim stands, and the handler's writes are rolled back. The code is not called if
// the gate refuses the delivery, or if its semantic key took effect before.
//
// handle: a crash in it costs a redelivery; the handler's rows were never visible.
func (c *Consumer) handle(ctx context.Context, tx *txn.Opened, it item, leaveProcess func()) (*disposition, error) {
	start := time.Now()
	var p admitted
	err := c.guarded(ctx, tx, []pawl.Delivery{it.Delivery}, leaveProcess, func(ctx context.Context, tx pgx.Tx) (err error) {
		p, err = c.passGate(ctx, tx, it)
		return err
	})
	switch {
	case errors.As(err, new(claimError)):
		return nil, err
	case err != nil:
		return c.failure(ctx, err)
	case p.admission != delivery.Passed:
		return c.refusedDisposition(ctx, tx, it, p)
	}
	return successDisposition(time.Since(start)), nil
}

// failure returns the disposition of a delivery whose handler failed: a durable job, in the
// transaction of its claim, after a rollback to the savepoint. No other transaction can win first.
func (c *Consumer) failure(ctx context.Context, failure error) (*disposition, error) {
	switch {
	case !lostForGood(ctx, failure):
	case chargeable(ctx, failure):
		return nil, &lostError{failure}
	default:
		return nil, failure
	}
	if c.handler.mode == RetryFromSource && !pawl.IsFinal(failure) && directive.Of(failure).What != directive.Cancel {
		return nil, leftToSource{failure}
	}
	return c.failureDisposition(failure), nil
}

// A leftToSource is the failure of a handler whose delivery the source retries.
type leftToSource struct{ error }

func (l leftToSource) Unwrap() error { return l.error }

// A lostError means that the handler lost the transaction, so another one must record the outcome.
// It does not unwrap: whether to run the lost transaction again is already decided.
type lostError struct{ failure error }

func (e *lostError) Error() string { return "the transaction was lost: " + e.failure.Error() }

// lostForGood reports whether a failed handler's transaction can record nothing any more.
func lostForGood(ctx context.Context, failure error) bool {
	return errors.Is(failure, txn.ErrEnded) || errors.Is(failure, txn.ErrLost) ||
		ctx.Err() != nil || txn.LostRace(failure) || pawl.MayHaveHappened(failure)
}

// chargeable reports whether such a failure counts as an attempt of the delivery. It does if the
// handler ended the transaction or overran its limit. An ended transaction may have made the claim
// durable; claiming again shows that. Not charged: shutdown, a lost race (run again), an unanswered
// COMMIT (claim again), an unreachable database.
func chargeable(ctx context.Context, failure error) bool {
	switch {
	case errors.Is(failure, txn.ErrEnded):
		return true
	case ctx.Err() != nil, txn.LostRace(failure), pawl.MayHaveHappened(failure):
		return false
	}
	return errors.Is(failure, txn.ErrLost) && !pawl.Unreachable(failure)
}

// endedByText reports whether a handler ended its transaction and may have made rows durable.
func endedByText(failure error) bool {
	return errors.Is(failure, txn.ErrEnded) && pawl.MayHaveHappened(failure)
}

// handleMany handles the shares of a batch that have no disposition yet, and sets it. It fails only
// if the transaction cannot record the dispositions. The error is a lostError if a handler ended
// the transaction, or if the deliveries must be tried singly.
func (c *Consumer) handleMany(ctx context.Context, tx *txn.Opened, shares []*share, leaveProcess func()) error {
	var open []*share
	for _, s := range shares {
		if s.refused == nil && s.disp == nil {
			open = append(open, s)
		}
	}
	start := time.Now()
	switch err := c.handleHalves(ctx, tx, open, leaveProcess); {
	case err == nil:
	case endedByText(err):
		return &lostError{err}
	default:
		c.emitEnded(ctx, shares[0].Delivery, err)
		if chargeable(ctx, err) {
			return &lostError{err}
		}
		return err
	}
	for took := time.Since(start); len(open) > 0; open = open[1:] {
		if open[0].disp == nil {
			open[0].disp = successDisposition(took)
		}
	}
	return nil
}

// handleHalves calls the handler for some deliveries behind a savepoint. If it fails, handleHalves
// tries each half, down to single deliveries, which get the failure as their disposition. It
// returns an error only if the transaction cannot record one.
func (c *Consumer) handleHalves(ctx context.Context, tx *txn.Opened, shares []*share, leaveProcess func()) error {
	if len(shares) == 0 {
		return nil
	}
	ds := make([]pawl.Delivery, len(shares))
	for n, s := range shares {
		ds[n] = s.Delivery
	}
	err := c.guarded(ctx, tx, ds, leaveProcess, func(ctx context.Context, tx pgx.Tx) error { return c.handler.tx(ctx, tx, ds) })
	switch {
	case err == nil:
		return nil
	case lostForGood(ctx, err):
		return err
	case len(shares) == 1:
		shares[0].disp = c.failureDisposition(err)
		return nil
	}
	if err := c.handleHalves(ctx, tx, shares[:len(shares)/2], leaveProcess); err != nil {
		return err
	}
	return c.handleHalves(ctx, tx, shares[len(shares)/2:], leaveProcess)
}

func (c *Consumer) guarded(ctx context.Context, tx *txn.Opened, ds []pawl.Delivery, leaveProcess func(), fn func(context.Context, pgx.Tx) error) error {
	defer c.watch(ctx, leaveProcess).Stop()
	return tx.Guard(ctx, c.handler.Timeout, func(ctx context.Context, tx pgx.Tx) error {
		defer c.running.enter(ds...)()
		if err := fault.At("consumer.handle.before"); err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return fault.At("consumer.handle.after")
	})
}

// enterProcess admits a delivery or a batch to the process, where a suspect may run alone: see
// package solo. leaveProcess may be called more than once.
func (c *Consumer) enterProcess(ctx context.Context) (leaveProcess func(), err error) {
	if err := solo.Process.Enter(ctx, 1); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { solo.Process.Leave(1) }), nil
}

// watch calls leaveProcess for a handler that does not return after its context is cancelled. The
// handler's goroutine and connection stay in use until it returns.
func (c *Consumer) watch(ctx context.Context, leaveProcess func()) *time.Timer {
	return solo.Abandon(c.handler.Timeout+abandonAfter, func() {
		leaveProcess()
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "consumer.handle", Err: errIgnored})
	})
}

var errIgnored = errors.New("the handler has not returned after its context was cancelled")
