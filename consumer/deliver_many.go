package consumer

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

// maxBatch is the limit of inbox_claim_many.
const maxBatch = 1000

// deliverMany takes deliveries through claim, handle and commit together. If a key occurs twice,
// the second delivery gets the outcome of the first (trap T16). Deliveries that cannot be part of a
// batch are delivered singly after it.
func (c *Consumer) deliverMany(ctx context.Context, ds []pawl.Delivery) []deliveryResult {
	var (
		results = make([]deliveryResult, len(ds))
		first   = map[string]int{} // index in items, by key
		items   []item
		indexes [][]int // for each item, the indexes of the deliveries it answers
		alone   []int
	)
	if len(ds) == 0 {
		return nil
	}
	// Enter first: entering may wait, and a delivery that was started is kept from other receivers.
	leaveProcess, err := c.enterProcess(ctx)
	if err != nil {
		return results // stopping
	}
	for i, d := range ds {
		it, err := c.identify(d)
		at, twice := first[it.intent.Key]
		switch {
		case err != nil, d.Receives >= c.handler.SoloAfter, c.losses.Count(it.intent.Key) > 0, twice && items[at].intent != it.intent:
			alone = append(alone, i)
		case !twice && !c.inFlight.enter(it.intent.Key):
			results[i] = c.conflict(ctx, d, nil)
		case !c.held(ctx, d):
			results[i].lost = true
			if !twice {
				c.inFlight.leave(it.intent.Key)
			}
		case twice:
			indexes[at] = append(indexes[at], i)
		default:
			first[it.intent.Key] = len(items)
			items, indexes = append(items, it.asStarted()), append(indexes, []int{i})
		}
	}
	for n, o := range c.applyMany(ctx, items, leaveProcess) {
		c.inFlight.leave(items[n].intent.Key)
		for _, i := range indexes[n] {
			results[i] = o
			if o.decided && i != indexes[n][0] {
				c.emitOf(ctx, ds[i], pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: "consumer.claim"})
			}
		}
	}
	for _, i := range alone {
		results[i] = c.deliver(ctx, ds[i])
	}
	return results
}

// applyMany is apply for many deliveries in one transaction. If the transaction is lost, it is
// unknown which delivery is the cause, and each runs singly. If the handler ended the transaction
// itself, rows of any of them may be durable, and none meets the handler again.
func (c *Consumer) applyMany(ctx context.Context, items []item, leaveProcess func()) (results []deliveryResult) {
	defer leaveProcess()
	if len(items) == 0 {
		return nil
	}
	err := c.retryTransaction(ctx, items[0].Delivery, func() (err error) {
		results, err = c.runTransactionMany(ctx, items, leaveProcess)
		return err
	})
	leaveProcess()
	var lost *lostError
	if txn.LostRace(err) { // it lost every race: see [txn.Restart]
		lost = &lostError{err}
	}
	singly := lost != nil || errors.As(err, &lost) || refused(err) // one of them may be the cause
	if err != nil {
		results = make([]deliveryResult, len(items))
	}
	for n, it := range items {
		if takenWithConnection(err) {
			c.losses.Lost(it.intent.Key)
			it.lost = true
		}
		switch {
		case singly:
			if lost != nil && endedByText(lost.failure) {
				it.preset = c.failureDisposition(lost.failure)
			}
			results[n] = c.runUntilKnown(ctx, it)
		case err != nil:
			results[n] = c.undecided(ctx, it.Delivery, "consumer.apply", err)
		case errors.As(results[n].failure, new(mismatch)):
			results[n] = c.runUntilKnown(ctx, c.asDeadLetter(it, results[n].failure).asStarted())
		case results[n].failure != nil:
			results[n] = c.undecided(ctx, it.Delivery, "consumer.claim", results[n].failure)
		}
	}
	return results
}

// runTransactionMany is one transaction of a batch: claim all, handle the fresh ones, commit.
// Deliveries that failed by themselves become jobs.
func (c *Consumer) runTransactionMany(ctx context.Context, items []item, leaveProcess func()) ([]deliveryResult, error) {
	tx, shares, err := c.claimMany(ctx, items)
	if err != nil {
		return nil, err
	}
	defer txn.Rollback(ctx, tx)
	if err := c.handleMany(ctx, tx, shares, leaveProcess); err != nil {
		return nil, err
	}
	return c.commitMany(ctx, tx, shares)
}
