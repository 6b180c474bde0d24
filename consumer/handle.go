package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/answer"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/internal/txn"
)

// handle runs your code behind a savepoint and says how the transaction ends. An error of the code leaves the claim standing and nothing of
// the handler's; so does a gate that does not let it pass, and a semantic key that took effect before.
//
// handle: a crash in it costs a redelivery; the handler's rows were never visible.
func (c *Consumer) handle(ctx context.Context, tx *txn.Opened, it item, leaveProcess func()) (*disposition, error) {
	start := time.Now()
	var p gateAnswer
	err := c.guarded(ctx, tx, leaveProcess, func(ctx context.Context, tx pgx.Tx) (err error) {
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
// transaction that claimed it, after a rollback to the savepoint. No other transaction can win in
// between.
func (c *Consumer) failure(ctx context.Context, failure error) (*disposition, error) {
	switch {
	case !lostForGood(ctx, failure):
	case chargeable(ctx, failure):
		return nil, &lostError{failure}
	default:
		return nil, failure
	}
	if c.handler.mode == RetryFromSource && !pawl.IsFinal(failure) && answer.Of(failure).What != answer.Cancel {
		return nil, leftToSource{failure}
	}
	return c.failureDisposition(failure), nil
}

// A leftToSource is the failure of a handler whose delivery the source is to hand out again.
type leftToSource struct{ error }

func (l leftToSource) Unwrap() error { return l.error }

// A lostError says that a transaction is gone through its handler, so that what became of the delivery has to be recorded in another
// one. It does not unwrap: whether to run the lost transaction again is decided already.
type lostError struct{ failure error }

func (e *lostError) Error() string { return "the transaction was lost: " + e.failure.Error() }

// lostForGood reports whether a failed handler's transaction can record nothing any more.
func lostForGood(ctx context.Context, failure error) bool {
	return errors.Is(failure, txn.ErrEnded) || errors.Is(failure, txn.ErrLost) ||
		ctx.Err() != nil || txn.LostRace(failure) || pawl.MayHaveHappened(failure)
}

// chargeable reports whether such a failure is the delivery's own: its handler ended the transaction
// (the claim may have become durable; claiming again will tell) or overran its limit. Not charged:
// shutdown, a lost race (run again), an unanswered COMMIT (claim again), an unreachable database.
func chargeable(ctx context.Context, failure error) bool {
	switch {
	case errors.Is(failure, txn.ErrEnded):
		return true
	case ctx.Err() != nil, txn.LostRace(failure), pawl.MayHaveHappened(failure):
		return false
	}
	return errors.Is(failure, txn.ErrLost) && !pawl.Unreachable(failure)
}

// endedByText reports whether a handler has ended its transaction in a way that may have made rows durable.
func endedByText(failure error) bool {
	return errors.Is(failure, txn.ErrEnded) && pawl.MayHaveHappened(failure)
}

// handleMany handles the shares of a batch that have no end yet, and gives each its end. It fails only if the transaction cannot record
// that: with a lostError if a handler ended it, or if the deliveries are to be tried one by one.
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

// handleHalves calls the handler for some deliveries behind a savepoint; if it fails, for each half of them. Those that fail by themselves
// end with that. It returns an error only if the transaction cannot record one.
func (c *Consumer) handleHalves(ctx context.Context, tx *txn.Opened, shares []*share, leaveProcess func()) error {
	if len(shares) == 0 {
		return nil
	}
	ds := make([]pawl.Delivery, len(shares))
	for n, s := range shares {
		ds[n] = s.Delivery
	}
	err := c.guarded(ctx, tx, leaveProcess, func(ctx context.Context, tx pgx.Tx) error { return c.handler.tx(ctx, tx, ds) })
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

func (c *Consumer) guarded(ctx context.Context, tx *txn.Opened, leaveProcess func(), fn func(context.Context, pgx.Tx) error) error {
	defer c.watch(ctx, leaveProcess).Stop()
	return tx.Guard(ctx, c.handler.Timeout, func(ctx context.Context, tx pgx.Tx) error {
		if err := fault.At("consumer.handle.before"); err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return fault.At("consumer.handle.after")
	})
}

// enterProcess lets a delivery, or a batch, in beside the suspect of this process, if there is one.
// leaveProcess ends its stay; only the first call does anything.
func (c *Consumer) enterProcess(ctx context.Context) (leaveProcess func(), err error) {
	if err := solo.Process.Enter(ctx, 1); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { solo.Process.Leave(1) }), nil
}

// watch ends the stay of a handler that ignores the end of its context. Its goroutine and its connection stay taken until it returns.
func (c *Consumer) watch(ctx context.Context, leaveProcess func()) *time.Timer {
	return solo.Abandon(c.handler.Timeout+abandonAfter, func() {
		leaveProcess()
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "consumer.handle", Err: errIgnored})
	})
}

var errIgnored = errors.New("the handler ignores the end of its context")
