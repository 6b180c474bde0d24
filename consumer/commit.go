package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// A disposition is how a transaction ends for the delivery that it claimed.
type disposition struct {
	rollback bool              // keep nothing: the database had the answer before
	readOn   string            // where that answer was read, if it may not be replicated
	store    *delivery.Storage // the job that takes the delivery over; nil: none
	held     bool              // that job waits at the sequence gate
	event    pawl.Event        // emitted after COMMIT
}

// untried reports whether the delivery is stored for a first try.
func (e *disposition) untried() bool { return e.store != nil && !e.store.Dead && e.store.Attempts == 0 }

// duplicateDisposition ends a delivery that the database has seen, by a rollback. If the server
// replicates synchronously, the row that was read must be replicated before the acknowledgement:
// see [Consumer.confirmAllReplicated]. The rollback also removes the claim of a delivery whose
// semantic key took effect before. Copies of one captured request under ever new keys thus leave no
// rows.
func duplicateDisposition(op string, c delivery.Claim) *disposition {
	return &disposition{rollback: true, readOn: c.ReadOn, event: pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: op, JobID: c.JobID}}
}

func successDisposition(took time.Duration) *disposition {
	return &disposition{event: pawl.Event{Kind: pawl.EventSucceeded, Op: "consumer.commit", Attempt: 1, Took: took}}
}

// commit commits a delivery's disposition and emits its event. The error is a lostError if COMMIT
// was refused because of the handler's writes.
func (c *Consumer) commit(ctx context.Context, tx *txn.Opened, claim delivery.Claim, it item, disp *disposition) (deliveryResult, error) {
	event := disp.event
	switch {
	case disp.rollback:
		txn.Rollback(ctx, tx)
	case disp.store != nil:
		var err error
		if event.JobID, err = c.commitStored(ctx, tx, claim, it, disp); err != nil {
			return deliveryResult{}, err
		}
	default:
		err := c.commitRows(ctx, tx, it)
		if handled := event.Kind == pawl.EventSucceeded; handled && (definite(err) || errors.Is(err, txn.ErrEnded)) {
			return deliveryResult{}, &lostError{err} // such as a deferred constraint
		}
		if err != nil {
			return deliveryResult{}, err
		}
	}
	c.emitOf(ctx, it.Delivery, event)
	return deliveryResult{decided: true, readOn: disp.readOn, mark: c.markOf(it, claim)}, nil
}

// markOf returns the mark of a delivery that the inbox now has, or nil if there is no filter.
func (c *Consumer) markOf(it item, claim delivery.Claim) *mark {
	if c.cfg.Filter == nil || !hasMark(it) {
		return nil
	}
	return &mark{markKey(it.intent), claim.Epoch.Mark(it.intent, claim.ReceivedAt)}
}

// commitMany commits the dispositions of a batch and emits their events. A batch of duplicates
// needs no COMMIT: confirmAllReplicated waits for them together with others.
func (c *Consumer) commitMany(ctx context.Context, tx *txn.Opened, shares []*share) ([]deliveryResult, error) {
	var succeeded []item
	events, writes := make([]pawl.Event, len(shares)), false
	for n, s := range shares {
		if s.refused != nil {
			continue
		}
		events[n] = s.disp.event
		switch {
		case s.disp.rollback:
			continue
		case s.disp.store == nil:
			succeeded = append(succeeded, s.item)
		default:
			var err error
			if events[n].JobID, err = c.storeRow(ctx, tx, s.claim, s.item, *s.disp.store); err != nil {
				return nil, err
			}
		}
		writes = true
	}
	if writes {
		if err := c.commitRows(ctx, tx, succeeded...); err != nil {
			return nil, c.refusedMany(ctx, shares, err)
		}
	}
	results := make([]deliveryResult, len(shares))
	for n, s := range shares {
		if s.refused != nil {
			results[n].failure = s.refused
			continue
		}
		c.emitOf(ctx, s.Delivery, events[n])
		results[n] = deliveryResult{decided: true, readOn: s.disp.readOn, mark: c.markOf(s.item, s.claim)}
	}
	return results, nil
}

// refusedMany returns a lostError if COMMIT was refused because of a handler's writes.
func (c *Consumer) refusedMany(ctx context.Context, shares []*share, err error) error {
	if endedByText(err) {
		return &lostError{err}
	}
	c.emitEnded(ctx, shares[0].Delivery, err)
	if definite(err) {
		return &lostError{err}
	}
	return err
}

// commitRows commits the handler's rows, the inbox rows and, with KeepAll, the deliveries.
//
// commit: a crash before COMMIT arrives costs a redelivery; after it, an absorbed duplicate.
func (c *Consumer) commitRows(ctx context.Context, tx *txn.Opened, items ...item) error {
	if err := fault.At("consumer.commit.before"); err != nil {
		return err
	}
	if err := tx.CommitWith(ctx, "consumer.commit", func(b *pgx.Batch) {
		if c.cfg.Keep.Mode != KeepAll {
			return
		}
		for _, it := range items {
			c.queueKeep(b, it)
		}
	}); err != nil {
		return err
	}
	if err := fault.At("consumer.commit.after"); err != nil { // simulates a lost reply
		return &pawl.Error{Op: "consumer.commit", Code: pawl.CodeCommitUnknown, Err: err}
	}
	return nil
}

// definite reports whether COMMIT was refused for a reason that another run would meet again.
func definite(err error) bool {
	return pawl.CodeOf(err) != "" && !txn.LostRace(err) && !pawl.MayHaveHappened(err) && !pawl.Unreachable(err)
}
