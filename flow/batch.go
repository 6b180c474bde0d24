package flow

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/receipt"
	"github.com/pawl-go/pawl/internal/txn"
)

// batchLinger is how long the first delivery of a batch waits for company.
const batchLinger = 10 * time.Millisecond

// maxBatch is what inbox_claim_many takes.
const maxBatch = 1000

// batchFrom collects the deliveries that arrive within the linger of the first, up to a batch.
func (f *Flow) batchFrom(first pawl.Delivery, work <-chan pawl.Delivery) []pawl.Delivery {
	batch := append(make([]pawl.Delivery, 0, f.cfg.BatchSize), first)
	linger := time.NewTimer(batchLinger)
	defer linger.Stop()
	for len(batch) < f.cfg.BatchSize {
		select {
		case d, open := <-work:
			if !open {
				return batch
			}
			batch = append(batch, d)
		case <-linger.C:
			return batch
		}
	}
	return batch
}

// An outcome is what became of one delivery of a batch: acknowledged if the receipt is valid, else given back after the wait.
type outcome struct {
	receipt pawl.Receipt
	wait    time.Duration
}

// finishBatch brings each delivery of a batch to an acknowledgement or back to the source. Those with an ordering key or a semantic one
// go by themselves.
func (f *Flow) finishBatch(stopping, ctx context.Context, all []pawl.Delivery, stopped <-chan struct{}) {
	var ds, ordered []pawl.Delivery
	for _, d := range all {
		if d.OrderingKey != "" || d.SemanticKey != "" {
			ordered = append(ordered, d)
			continue
		}
		ds = append(ds, d)
	}
	for i, o := range f.deliverBatch(ctx, ds) {
		if !decided(o.receipt) {
			f.giveBack(ctx, o.wait, ds[i])
			continue
		}
		f.acknowledge(ds[i], o.receipt, stopped)
	}
	for _, d := range ordered {
		f.finishGroup(stopping, ctx, d, stopped)
	}
}

// deliverBatch takes deliveries through claim, handle and commit together. A key that is there twice goes in once: the second is
// answered as the first (trap T16). What does not fit into the batch is delivered by itself, behind it.
func (f *Flow) deliverBatch(ctx context.Context, ds []pawl.Delivery) []outcome {
	var (
		outcomes = make([]outcome, len(ds))
		first    = map[string]int{} // by key, the place in items
		items    []item
		places   [][]int // of each item: the deliveries it answers
		alone    []int
	)
	for i, d := range ds {
		it, err := f.identify(d)
		at, twice := first[it.intent.Key]
		switch {
		case err != nil, d.Receives >= f.cfg.SoloAfter, twice && items[at].intent != it.intent:
			alone = append(alone, i)
		case twice:
			places[at] = append(places[at], i)
		case !f.inFlight.enter(it.intent.Key):
			outcomes[i].receipt, outcomes[i].wait = f.conflict(ctx, d, nil)
		default:
			first[it.intent.Key] = len(items)
			items, places = append(items, it), append(places, []int{i})
		}
	}
	for n, o := range f.applyBatch(ctx, items) {
		f.inFlight.leave(items[n].intent.Key)
		for _, i := range places[n] {
			outcomes[i] = o
			if !decided(o.receipt) {
				continue
			}
			outcomes[i].receipt = receipt.Of(o.receipt, ds[i].Handle)
			if i != places[n][0] {
				f.emitOf(ctx, ds[i], pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: "flow.claim"})
			}
		}
	}
	for _, i := range alone {
		outcomes[i].receipt, outcomes[i].wait = f.deliver(ctx, ds[i])
	}
	return outcomes
}

// applyBatch is apply for many, in one transaction. If that is lost nobody knows through whom, and each goes by itself.
func (f *Flow) applyBatch(ctx context.Context, items []item) (outcomes []outcome) {
	if len(items) == 0 {
		return nil
	}
	leave, err := f.enter(ctx)
	if err != nil {
		return make([]outcome, len(items)) // stopping
	}
	singly := false
	err = f.untilKnown(ctx, items[0].Delivery, func() (err error) {
		outcomes, singly, err = f.onceBatch(ctx, items, leave)
		return err
	})
	leave()
	if err == nil && !singly {
		return outcomes
	}
	outcomes = make([]outcome, len(items))
	for n, it := range items {
		if singly {
			outcomes[n].receipt, outcomes[n].wait = f.apply(ctx, it)
		} else {
			outcomes[n].receipt, outcomes[n].wait = f.undecided(ctx, it.Delivery, "flow.apply", err)
		}
	}
	return outcomes
}

// A share is one delivery's part of a batch's transaction.
type share struct {
	item
	claim   inbox.Claim
	stale   error // too old to be handled
	failure error
}

// succeeded are the deliveries that take effect with this transaction.
func succeeded(shares []*share) (items []item) {
	for _, s := range shares {
		if s.stale == nil && s.failure == nil {
			items = append(items, s.item)
		}
	}
	return items
}

// handled are the shares that the handler gets to see.
func handled(shares []*share) []*share {
	return slices.DeleteFunc(slices.Clone(shares), func(s *share) bool { return s.stale != nil })
}

// onceBatch is one transaction: claim all, handle those that are fresh, land those that fail by themselves, commit. It asks for
// the deliveries one by one if its transaction was lost through one of them.
func (f *Flow) onceBatch(ctx context.Context, items []item, leave func()) (outcomes []outcome, singly bool, err error) {
	tx, claims, refused, err := f.claimBatch(ctx, items)
	if err != nil {
		return nil, false, err
	}
	defer txn.Rollback(ctx, tx)
	var fresh []*share
	for n, it := range items {
		if refused[n] == nil && claims[n].Fresh {
			fresh = append(fresh, &share{item: it, claim: claims[n], stale: f.stale(claims[n], it.Delivery)})
		}
	}
	start := time.Now()
	if err := f.handleBatch(ctx, tx, handled(fresh), leave); err != nil {
		if endedByText(err) {
			txn.Rollback(ctx, tx)
			return f.landBatchAfresh(ctx, items, err), false, nil
		}
		f.emitEnded(ctx, items[0].Delivery, err)
		return nil, chargeable(ctx, err), chargedElsewhere(ctx, err)
	}
	took := time.Since(start)
	events, err := f.landFailed(ctx, tx, fresh, took)
	if err != nil {
		return nil, false, err
	}
	if len(fresh) > 0 { // duplicates alone are proved together with others
		if err := f.commit(ctx, tx, succeeded(fresh)...); err != nil {
			if endedByText(err) {
				txn.Rollback(ctx, tx)
				return f.landBatchAfresh(ctx, items, err), false, nil
			}
			f.emitEnded(ctx, items[0].Delivery, err)
			if definite(err) {
				return nil, true, nil
			}
			return nil, false, err
		}
	}
	for n, s := range fresh {
		f.emitOf(ctx, s.Delivery, events[n])
	}
	outcomes = make([]outcome, len(items))
	for n, it := range items {
		switch {
		case refused[n] != nil:
			outcomes[n].receipt, outcomes[n].wait = f.undecided(ctx, it.Delivery, "flow.claim", refused[n])
		case claims[n].Fresh:
			outcomes[n].receipt = answered(it.Delivery)
		default:
			outcomes[n].receipt = f.duplicate(ctx, it.Delivery, "flow.claim", claims[n])
		}
	}
	return outcomes, false, nil
}

// landBatchAfresh is landAfresh for a batch whose handler has ended the transaction by text: rows of any of its deliveries may be durable.
func (f *Flow) landBatchAfresh(ctx context.Context, items []item, failure error) []outcome {
	outcomes := make([]outcome, len(items))
	for n, it := range items {
		err := txn.Restart(ctx, func() (err error) {
			outcomes[n].receipt, err = f.landAfresh(ctx, it, failure)
			return err
		})
		if err != nil {
			outcomes[n].receipt, outcomes[n].wait = f.undecided(ctx, it.Delivery, "flow.land", err)
		}
	}
	return outcomes
}

// chargedElsewhere is the error of a batch, unless its deliveries are now tried one by one.
func chargedElsewhere(ctx context.Context, err error) error {
	if chargeable(ctx, err) {
		return nil
	}
	return err
}

// claimBatch opens the transaction and inserts the inbox rows, in one statement that is the first.
func (f *Flow) claimBatch(ctx context.Context, items []item) (*txn.Opened, []inbox.Claim, []error, error) {
	intents := make([]pawl.Intent, len(items))
	for n, it := range items {
		intents[n] = it.intent
	}
	pending, err := inbox.PrepareMany(intents)
	if err != nil {
		return nil, nil, nil, err
	}
	tx, err := f.open(ctx, pending.Queue)
	if err != nil {
		return nil, nil, nil, err
	}
	claims, refused := pending.Claims()
	return tx, claims, refused, nil
}

// handleBatch calls the handler for some deliveries behind a savepoint; if it fails, for each half of them. It notes those that
// fail by themselves, and returns an error only if the transaction cannot record that.
func (f *Flow) handleBatch(ctx context.Context, tx *txn.Opened, shares []*share, leave func()) error {
	if len(shares) == 0 {
		return nil
	}
	ds := make([]pawl.Delivery, len(shares))
	for n, s := range shares {
		ds[n] = s.Delivery
	}
	err := f.guarded(ctx, tx, leave, func(ctx context.Context, tx pgx.Tx) error { return f.cfg.BatchHandler(ctx, tx, ds) })
	switch {
	case err == nil:
		return nil
	case lostForGood(ctx, err):
		return err
	case len(shares) == 1:
		shares[0].failure = err
		return nil
	}
	if err := f.handleBatch(ctx, tx, shares[:len(shares)/2], leave); err != nil {
		return err
	}
	return f.handleBatch(ctx, tx, shares[len(shares)/2:], leave)
}

// landFailed lands those that failed, in the transaction that claimed them, and returns what is to be told of each after its
// COMMIT.
func (f *Flow) landFailed(ctx context.Context, tx pgx.Tx, shares []*share, took time.Duration) ([]pawl.Event, error) {
	events := make([]pawl.Event, len(shares))
	for n, s := range shares {
		l, kind, why := f.staleLanding(s.stale), pawl.EventStale, s.stale
		switch {
		case s.stale != nil:
		case s.failure == nil:
			events[n] = pawl.Event{Kind: pawl.EventFresh, Op: "flow.commit", Attempt: 1, Took: took}
			continue
		default:
			why = s.failure
			l, kind = f.failed(why)
		}
		jobID, err := f.landRow(ctx, tx, s.claim, s.item, l)
		if err != nil {
			return nil, err
		}
		events[n] = pawl.Event{Kind: kind, Op: "flow.land", JobID: jobID, Attempt: l.Attempts, Err: why}
	}
	return events, nil
}
