package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/lock"
)

// claim opens the transaction and inserts the inbox row as its first statement, in one message. It
// locks a lane first, so that an earlier delivery of the lane has committed or been stored.
//
// claim: a crash after it costs a redelivery; the row was never visible.
func (c *Consumer) claim(ctx context.Context, it item) (*txn.Opened, delivery.Claim, error) {
	pending, err := delivery.Prepare(it.intent, it.lane)
	if err != nil {
		return nil, delivery.Claim{}, err
	}
	tx, epoch, err := c.open(ctx, pending.Queue)
	if err != nil {
		return nil, delivery.Claim{}, mismatched(err)
	}
	claim, err := pending.Claim()
	if err != nil {
		txn.Rollback(ctx, tx)
		return nil, delivery.Claim{}, err
	}
	claim.Epoch = epoch
	return tx, claim, nil
}

// A mismatch is the error of a claim whose key came before with another payload. The wrapper
// distinguishes it from a [pawl.ErrKeyReused] that the handler got for another key.
type mismatch struct{ error }

func (m mismatch) Unwrap() error { return m.error }

// mismatched marks the error of a claim if it says that the key was reused.
func mismatched(err error) error {
	if errors.Is(err, pawl.ErrKeyReused) {
		return mismatch{err}
	}
	return err
}

// open begins the transaction that the claim and the effect share. With a filter it also reads the
// epoch of the inbox, before the claim.
func (c *Consumer) open(ctx context.Context, claim func(*pgx.Batch)) (tx *txn.Opened, epoch delivery.Epoch, err error) {
	tx, err = txn.Opener{Pool: c.pool, SQL: c.handler.sql, Limit: txn.ReplyLimit}.Open(ctx, "consumer.begin", "", c.handler.Timeout+abandonAfter, func(b *pgx.Batch) {
		if c.cfg.Filter != nil {
			delivery.QueueEpoch(b, c.cfg.Name, &epoch)
		}
		claim(b)
	})
	if err != nil {
		return nil, epoch, err
	}
	if err := fault.At("consumer.claim.after"); err != nil {
		txn.Rollback(ctx, tx)
		return nil, epoch, err
	}
	return tx, epoch, nil
}

// claimMany opens the transaction and inserts the inbox rows of a batch in its first statement. It
// sets the disposition of each share whose handler must not run.
func (c *Consumer) claimMany(ctx context.Context, items []item) (*txn.Opened, []*share, error) {
	intents := make([]pawl.Intent, len(items))
	for n, it := range items {
		intents[n] = it.intent
	}
	pending, err := delivery.PrepareMany(intents)
	if err != nil {
		return nil, nil, err
	}
	tx, epoch, err := c.open(ctx, pending.Queue)
	if err != nil {
		return nil, nil, err
	}
	claims, refused := pending.Claims()
	var asked forgottenUntil
	shares := make([]*share, len(items))
	for n, it := range items {
		s := &share{item: it, claim: claims[n], refused: mismatched(refused[n])}
		s.claim.Epoch = epoch
		switch {
		case s.refused != nil:
		case !s.claim.Fresh:
			s.disp = duplicateDisposition("consumer.claim", s.claim)
		default:
			if s.disp, err = c.stale(ctx, tx, s.claim, it.Delivery, &asked); err != nil {
				txn.Rollback(ctx, tx)
				return nil, nil, err
			}
		}
		shares[n] = s
	}
	return tx, shares, nil
}

// A share is one delivery's part of a batch's transaction.
type share struct {
	item
	claim   delivery.Claim
	refused error        // the claim's error
	disp    *disposition // nil: not decided yet
}

// withoutHandler returns the disposition when the handler must not run: duplicate, stale, lane not
// free, resource busy, or decided earlier. Nil means: run it.
func (c *Consumer) withoutHandler(ctx context.Context, tx *txn.Opened, claim delivery.Claim, it item) (*disposition, error) {
	if !claim.Fresh {
		if it.preset != nil {
			c.emitEnded(ctx, it.Delivery, it.preset.event.Err)
		}
		return duplicateDisposition("consumer.claim", claim), nil
	}
	if it.preset != nil && !it.preset.untried() {
		return it.preset, nil
	}
	if disp, err := c.stale(ctx, tx, claim, it.Delivery, &forgottenUntil{}); err != nil || disp != nil {
		return disp, err
	}
	if it.preset == nil && !claim.Behind {
		return c.busy(ctx, tx, it)
	}
	first, took, err := c.semanticDuplicate(ctx, tx, it)
	switch {
	case err != nil:
		return nil, err
	case took:
		return duplicateDisposition("consumer.semantic", first), nil
	case it.preset != nil:
		return it.preset, nil
	}
	return c.untriedDisposition(pawl.EventStored), nil
}

// busy takes the lock of the delivery's resource. If the lock is held, busy returns an error, and
// the delivery is released. If that has happened SoloAfter times, or a release would hold up others
// at the source, busy stores the delivery, unsuspected, for a retry in up to a second.
func (c *Consumer) busy(ctx context.Context, tx pgx.Tx, it item) (*disposition, error) {
	err := exclude(ctx, tx, it.resource)
	if !verdict.IsBusy(pawl.CodeOf(err)) || it.Receives < c.handler.SoloAfter && !c.info.ReleaseBlocks {
		return nil, err
	}
	disp := c.untriedDisposition(pawl.EventStored)
	disp.store.RetryIn, disp.event.Err = pace.Jittered(time.Second), err
	return disp, nil
}

// exclusiveNamespace is the lock namespace of [TxPolicy.Exclusive], shared by all consumers.
const exclusiveNamespace = "consumer"

// exclude takes the lock of a resource until the transaction ends.
func exclude(ctx context.Context, tx pgx.Tx, resource string) error {
	if resource == "" {
		return nil
	}
	locked, err := lock.TryLock(ctx, tx, exclusiveNamespace, resource)
	if err == nil && !locked {
		err = &pawl.Error{Op: "consumer.exclude", Code: verdict.LockNotAvailable, Err: fmt.Errorf("another handler works on %s", resource)}
	}
	return err
}
