package consumer

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/txn"
)

// maxBatch is what inbox_claim_many takes.
const maxBatch = 1000

// deliverMany takes deliveries through claim, handle and commit together. A key that is there twice goes in once: the second is
// answered as the first (trap T16). What does not fit into the batch is delivered by itself, behind it.
func (c *Consumer) deliverMany(ctx context.Context, ds []pawl.Delivery) []outcome {
	var (
		outcomes = make([]outcome, len(ds))
		first    = map[string]int{} // by key, the place in items
		items    []item
		places   [][]int // of each item: the deliveries it answers
		alone    []int
	)
	if len(ds) == 0 {
		return nil
	}
	leaveProcess, err := c.enterProcess(ctx) // first: it may wait, and what was begun is kept from others
	if err != nil {
		return outcomes // stopping
	}
	for i, d := range ds {
		it, err := c.identify(d)
		at, twice := first[it.intent.Key]
		switch {
		case err != nil, d.Receives >= c.handler.SoloAfter, c.losses.Count(it.intent.Key) > 0, twice && items[at].intent != it.intent:
			alone = append(alone, i)
		case !twice && !c.inFlight.enter(it.intent.Key):
			outcomes[i] = c.conflict(ctx, d, nil)
		case !c.held(ctx, d):
			outcomes[i].lost = true
			if !twice {
				c.inFlight.leave(it.intent.Key)
			}
		case twice:
			places[at] = append(places[at], i)
		default:
			first[it.intent.Key] = len(items)
			items, places = append(items, it.asStarted()), append(places, []int{i})
		}
	}
	for n, o := range c.applyMany(ctx, items, leaveProcess) {
		c.inFlight.leave(items[n].intent.Key)
		for _, i := range places[n] {
			outcomes[i] = o
			if o.decided && i != places[n][0] {
				c.emitOf(ctx, ds[i], pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: "consumer.claim"})
			}
		}
	}
	for _, i := range alone {
		outcomes[i] = c.deliver(ctx, ds[i])
	}
	return outcomes
}

// applyMany is apply for many, in one transaction. If that is lost it is not known through which, and each goes by itself; if the handler
// has ended it by text, rows of any of them may be durable, and none meets it again.
func (c *Consumer) applyMany(ctx context.Context, items []item, leaveProcess func()) (outcomes []outcome) {
	defer leaveProcess()
	if len(items) == 0 {
		return nil
	}
	err := c.retryTransaction(ctx, items[0].Delivery, func() (err error) {
		outcomes, err = c.runTransactionMany(ctx, items, leaveProcess)
		return err
	})
	leaveProcess()
	var lost *lostError
	if txn.LostRace(err) { // each time: see [txn.Restart]
		lost = &lostError{err}
	}
	singly := lost != nil || errors.As(err, &lost) || refused(err) // of one of them, perhaps
	if err != nil {
		outcomes = make([]outcome, len(items))
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
			outcomes[n] = c.runUntilKnown(ctx, it)
		case err != nil:
			outcomes[n] = c.undecided(ctx, it.Delivery, "consumer.apply", err)
		case errors.As(outcomes[n].failure, new(mismatch)):
			outcomes[n] = c.runUntilKnown(ctx, c.asDeadLetter(it, outcomes[n].failure).asStarted())
		case outcomes[n].failure != nil:
			outcomes[n] = c.undecided(ctx, it.Delivery, "consumer.claim", outcomes[n].failure)
		}
	}
	return outcomes
}

// runTransactionMany is one transaction of a batch: claim all, handle those that are fresh, commit, with jobs for those that failed by themselves.
func (c *Consumer) runTransactionMany(ctx context.Context, items []item, leaveProcess func()) ([]outcome, error) {
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
