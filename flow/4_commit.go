package flow

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/receipt"
	"github.com/pawl-go/pawl/internal/txn"
)

// askAgain bounds how often a lost reply to COMMIT is asked about before the delivery is left to the source.
const askAgain = 5

// apply takes a delivery through claim, handle and commit, as often as its transaction loses a race or its COMMIT goes
// unanswered.
func (f *Flow) apply(ctx context.Context, it item) (r pawl.Receipt, wait time.Duration) {
	leave, err := f.enter(ctx)
	if err != nil {
		return pawl.Receipt{}, 0 // stopping
	}
	defer leave()
	err = f.untilKnown(ctx, it.Delivery, func() (err error) {
		r, err = f.once(ctx, it, leave)
		return err
	})
	if err != nil {
		return f.undecided(ctx, it.Delivery, "flow.apply", err)
	}
	return r, 0
}

// untilKnown runs a whole transaction again after a lost race, and after a COMMIT without an answer. In the latter case we do
// not guess: we claim again, which waits for the old transaction and then shows who won, and handle it only if the claim is
// fresh.
func (f *Flow) untilKnown(ctx context.Context, d pawl.Delivery, once func() error) (err error) {
	for asked := 0; asked <= askAgain; asked++ {
		err = txn.Restart(ctx, once)
		if !pawl.MayHaveHappened(err) && !(asked > 0 && pawl.Retryable(err)) {
			break
		}
		f.away.Store(true) // it may accept connections and answer no COMMIT: ask before more is received
		f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventCommitUnknown, Op: "flow.commit", Err: err})
		pause(ctx, jittered(100*time.Millisecond<<asked))
	}
	return err
}

// once is one transaction: claim, handle, commit; or, if the handler fails, claim, land, commit.
func (f *Flow) once(ctx context.Context, it item, leave func()) (pawl.Receipt, error) {
	tx, claim, err := f.claim(ctx, it)
	if err != nil {
		return pawl.Receipt{}, err
	}
	defer txn.Rollback(ctx, tx)
	switch {
	case !claim.Fresh:
		return f.duplicate(ctx, it.Delivery, "flow.claim", claim), nil
	case f.stale(claim, it.Delivery) != nil:
		return f.landStale(ctx, tx, claim, it)
	case claim.Behind:
		return f.landUntried(ctx, tx, claim, it, f.untried(), pawl.EventLanded)
	}
	if err := exclude(ctx, tx, it.resource); err != nil {
		if pawl.CodeOf(err) == lockNotHad && it.Receives >= f.cfg.SoloAfter {
			return f.landBusy(ctx, tx, claim, it, err)
		}
		return pawl.Receipt{}, err
	}
	passage, took, failure := f.handle(ctx, tx, it, leave)
	switch {
	case errors.As(failure, new(claimError)):
		return pawl.Receipt{}, failure
	case failure != nil:
		return f.land(ctx, tx, claim, it, failure)
	case passage.verdict != inbox.Passed:
		return f.notPassed(ctx, tx, claim, it, passage)
	}
	err = f.commit(ctx, tx, it)
	switch {
	case err == nil:
		f.emitOf(ctx, it.Delivery, pawl.Event{Kind: pawl.EventFresh, Op: "flow.commit", Attempt: 1, Took: took})
		return answered(it.Delivery), nil
	case definite(err), errors.Is(err, txn.ErrEnded):
		return f.landAfresh(ctx, it, err) // a deferred constraint, for instance
	}
	return pawl.Receipt{}, err
}

// commit makes effect and inbox row durable together, and the deliveries themselves if all are kept.
//
// commit: a crash before COMMIT arrives costs a redelivery; after it, nothing: the duplicate is absorbed.
func (f *Flow) commit(ctx context.Context, tx *txn.Opened, items ...item) error {
	if err := fault.At("flow.commit.before"); err != nil {
		return err
	}
	if err := tx.CommitWith(ctx, "flow.commit", func(b *pgx.Batch) {
		if f.cfg.Keep != KeepAll {
			return
		}
		for _, it := range items {
			f.queueKeep(b, it)
		}
	}); err != nil {
		return err
	}
	if err := fault.At("flow.commit.after"); err != nil { // plays a reply that was lost
		return &pawl.Error{Op: "flow.commit", Code: pawl.CodeCommitUnknown, Err: err}
	}
	return nil
}

// definite reports whether COMMIT was refused for a reason that will not go away by running the transaction again.
func definite(err error) bool {
	code := pawl.CodeOf(err)
	return code != "" && code != "40001" && code != "40P01" && !pawl.MayHaveHappened(err) && !pawl.Unreachable(err)
}

// decided reports whether the database holds the outcome of a delivery, proved or not.
func decided(r pawl.Receipt) bool { return r.Valid() || receipt.Unproved(r) }

// answered makes the receipt of a delivery whose outcome the database holds.
func answered(d pawl.Delivery) pawl.Receipt { return receipt.Committed(d.Handle) }
