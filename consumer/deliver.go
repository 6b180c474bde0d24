package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
)

// askAgain bounds the claims after an unanswered COMMIT. After that the delivery is released.
const askAgain = 5

// deliver takes one delivery through the steps, in their order. A decided outcome is in the
// database; otherwise the caller releases the delivery after the wait.
func (c *Consumer) deliver(ctx context.Context, d pawl.Delivery) deliveryResult {
	if c.handler.form == triggered {
		return c.deliverTrigger(ctx, d)
	}
	it, invalid := c.identify(d)
	if invalid != nil {
		it = c.asDeadLetter(it, invalid)
	}
	if !c.inFlight.enter(it.intent.Key) {
		return c.conflict(ctx, it.Delivery, nil)
	}
	defer c.inFlight.leave(it.intent.Key)
	if invalid == nil {
		var err error
		if it.preset, err = c.presetFor(ctx, d); err != nil {
			return c.undecided(ctx, d, "consumer.suspect", err)
		}
	}
	return c.runUntilKnown(ctx, it)
}

// runUntilKnown runs the transaction of a delivery until its outcome is known. A mismatch becomes a
// dead letter, and so does a delivery that the database would refuse each time.
func (c *Consumer) runUntilKnown(ctx context.Context, it item) deliveryResult {
	o, err := c.apply(ctx, it)
	if errors.As(err, new(mismatch)) || refused(err) {
		it = c.asDeadLetter(it, err).asStarted()
		o, err = c.apply(ctx, it)
	}
	switch {
	case err == nil:
		return o
	case it.preset != nil:
		return c.undecided(ctx, it.Delivery, "consumer.store", err)
	}
	return c.undecided(ctx, it.Delivery, "consumer.apply", err)
}

// apply takes a delivery through claim, handle and commit. The transaction runs again if it loses a
// race or its COMMIT is not answered. If the handler loses the transaction, another one claims and
// records the failure, unless the database already holds an outcome.
func (c *Consumer) apply(ctx context.Context, it item) (o deliveryResult, err error) {
	key, leaveProcess := it.intent.Key, func() {}
	var exclusive verdict.Exclusive
	defer exclusive.Release()
	if it.preset == nil {
		if c.losses.Last(key) {
			// before entering the process, where a suspect waits to be alone
			if err := exclusive.Acquire(ctx); err != nil {
				return deliveryResult{}, nil // stopping
			}
			ctx = exclusive.Context(ctx)
		}
		left, err := c.enterProcess(ctx)
		if err != nil {
			return deliveryResult{}, nil // stopping
		}
		leaveProcess = func() {
			left()
			exclusive.Release()
		}
	}
	defer leaveProcess()
	if !it.started && !c.held(ctx, it.Delivery) {
		return deliveryResult{lost: true}, nil
	}
	counted := it.lost
	once := func() (err error) {
		if it.preset == nil && c.losses.Count(key) >= verdict.Bound {
			return &lostError{txn.Taken()}
		}
		o, err = c.runTransaction(ctx, it, leaveProcess)
		taken := takenWithConnection(err)
		if taken {
			exclusive.Lost()
		}
		switch {
		case taken && !counted:
			c.losses.Lost(key)
			counted = true
		case err == nil:
			c.losses.Over(key)
		}
		return err
	}
	err = c.retryTransaction(ctx, it.Delivery, once)
	var lost *lostError
	// a first loss may be the network's fault
	if errors.As(err, &lost) && errors.Is(lost.failure, txn.ErrAlone) {
		lost, err = nil, c.retryTransaction(ctx, it.Delivery, once)
	}
	if txn.LostRace(err) { // it lost every race: see [txn.Restart]
		lost = &lostError{err}
	}
	if lost != nil || errors.As(err, &lost) {
		it.preset = c.failureDisposition(lost.failure)
		err = c.retryTransaction(ctx, it.Delivery, once)
	}
	return o, err
}

// takenWithConnection reports whether a handler lost its transaction with the connection.
func takenWithConnection(err error) bool {
	var lost *lostError
	if errors.As(err, &lost) {
		err = lost.failure
	}
	return txn.Lost(err)
}

func (c *Consumer) runTransaction(ctx context.Context, it item, leaveProcess func()) (deliveryResult, error) {
	tx, claim, err := c.claim(ctx, it)
	if err != nil {
		return deliveryResult{}, err
	}
	defer txn.Rollback(ctx, tx)
	disp, err := c.withoutHandler(ctx, tx, claim, it)
	if err == nil && disp == nil {
		disp, err = c.handle(ctx, tx, it, leaveProcess)
	}
	if err != nil {
		return deliveryResult{}, err
	}
	return c.commit(ctx, tx, claim, it, disp)
}

// retryTransaction runs a whole transaction again after a lost race or an unanswered COMMIT. After
// the latter, the new claim waits for the old transaction and shows which one won. The handler is
// called only if that claim is fresh. If the server answers others, the error is a lostError.
func (c *Consumer) retryTransaction(ctx context.Context, d pawl.Delivery, once func() error) (err error) {
	for asked := 0; asked <= askAgain; asked++ {
		err = txn.Restart(ctx, once)
		if !pawl.MayHaveHappened(err) && !(asked > 0 && pawl.Retryable(err)) {
			break
		}
		// The server may accept connections and not answer COMMIT, so probe before receiving more.
		c.away.Store(true)
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventCommitUnknown, Op: "consumer.commit", Err: err})
		if errors.Is(err, txn.ErrAlone) {
			return &lostError{err}
		}
		pace.Sleep(ctx, pace.Jittered(100*time.Millisecond<<asked))
	}
	return err
}

// deliverTrigger calls the trigger without a claim. After a final failure, such as a payload that
// does not fit the trigger's type, the delivery becomes a dead letter: the source would deliver it
// for ever. After another failure it is released to the source, or becomes a job if it would hold
// up later deliveries there.
func (c *Consumer) deliverTrigger(ctx context.Context, d pawl.Delivery) (o deliveryResult) {
	key := "" // for counting losses; "": the source counts them
	if c.info.ReleaseBlocks {
		key = c.storedTrigger(d).Key
	}
	defer func() {
		if o.decided {
			c.losses.Over(key)
		}
	}()
	var exclusive verdict.Exclusive
	defer exclusive.Release()
	if c.losses.Last(key) {
		if err := exclusive.Acquire(ctx); err != nil {
			return deliveryResult{} // stopping
		}
		ctx = exclusive.Context(ctx)
	}
	leaveProcess, err := c.enterProcess(ctx)
	if err != nil {
		return deliveryResult{} // stopping
	}
	if !c.held(ctx, d) {
		leaveProcess()
		return deliveryResult{lost: true}
	}
	invalid := tooLarge(d)
	if d.Fault != nil {
		invalid = unreadable(d.Fault)
	}
	if invalid != nil {
		leaveProcess()
		return c.runUntilKnown(ctx, c.asDeadLetter(item{Delivery: d, sent: d.Key}, invalid).asStarted())
	}
	if c.losses.Count(key) >= verdict.Bound {
		leaveProcess()
		return c.runUntilKnown(ctx, c.asFailedTrigger(d, txn.Taken()).asStarted())
	}
	disp, err := c.trigger(ctx, d, leaveProcess)
	leaveProcess()
	switch {
	case errors.As(err, new(invalidError)), errors.As(err, new(mismatch)):
		return c.runUntilKnown(ctx, c.asDeadLetter(item{Delivery: d, sent: d.Key}, err).asStarted())
	case err != nil && (c.info.ReleaseBlocks || pawl.IsFinal(err)) && ctx.Err() == nil && !heldElsewhere(err) && !away("consumer.trigger", err):
		return c.runUntilKnown(ctx, c.asFailedTrigger(d, err).asStarted())
	case err != nil:
		if key != "" && ctx.Err() == nil && brokeOff(err) {
			c.losses.Lost(key)
			exclusive.Lost()
		}
		return c.undecided(ctx, d, "consumer.trigger", err)
	}
	c.emitOf(ctx, d, disp.event)
	return deliveryResult{decided: true}
}
