package consumer

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/job"
)

// deliverAgain delivers again a job that does not own the key of its intent: an invalid delivery or
// a mismatch. The consumer identifies it by the current configuration and claims its key, in the
// transaction that ends the job.
//
// The delivery becomes a new job under that key, in its lane. Or it ends like any delivery whose
// handler is not called: as a duplicate, or as a dead letter that is stale or a mismatch. So a
// later copy under the key is a duplicate, and the retry is a duplicate of an earlier copy.
//
// A delivery that is still a mismatch does not move. The operator who retries it has decided that
// it takes effect in addition to the first.
//
// again: a crash before COMMIT costs another retry; after it, nothing.
func (c *Consumer) deliverAgain(ctx context.Context, tx pgx.Tx, j job.Job) (moved bool, err error) {
	inboxKey := textAt(j.Headers, headerInboxKey)
	if !ownKey(inboxKey) {
		return false, nil
	}
	decided := strings.HasPrefix(inboxKey, reservedPrefix+string(pawl.EventMismatch)+"/")
	if err := kept(j); err != nil {
		return false, pawl.Final(undecidable(err, decided))
	}
	if c.handler.form == triggered { // the user's rows remember, not the inbox
		return false, nil
	}
	it, err := c.identifyAgain(j)
	if err != nil {
		return false, pawl.Final(undecidable(err, decided))
	}
	claim, err := claimBehind(ctx, tx, it)
	if errors.As(err, new(mismatch)) {
		if decided {
			return false, nil
		}
		it = c.asDeadLetter(it, err)
		claim, err = claimBehind(ctx, tx, it)
	}
	switch {
	case verdict.IsBusy(pawl.CodeOf(err)):
		return false, job.Snooze(pace.Jittered(time.Second))
	case err != nil:
		return false, err
	}
	disp, err := c.endAgain(ctx, tx, claim, it, j)
	if err != nil {
		return false, err
	}
	event := disp.event
	if disp.store != nil {
		if event.JobID, err = c.storeRow(ctx, tx, claim, it, *disp.store); err != nil {
			return false, err
		}
	}
	c.emitOf(ctx, it.Delivery, event)
	return true, nil
}

// endAgain returns the disposition of a delivery that was just claimed again. Without a timestamp
// the delivery is as old as its job: a copy may have taken effect since then and been purged.
func (c *Consumer) endAgain(ctx context.Context, tx pgx.Tx, claim delivery.Claim, it item, j job.Job) (*disposition, error) {
	switch {
	case !claim.Fresh:
		return duplicateDisposition("consumer.claim", claim), nil
	case it.preset != nil:
		return it.preset, nil
	}
	d := it.Delivery
	if d.SentAt.IsZero() && d.ProducedAt.IsZero() {
		d.SentAt = j.CreatedAt
	}
	if disp, err := c.stale(ctx, tx, claim, d, &forgottenUntil{}); disp != nil || err != nil {
		return disp, err
	}
	return c.untriedDisposition(pawl.EventStored), nil
}

// moved runs deliverAgain in a transaction of its own, for a handler that has none.
func (c *Consumer) moved(ctx context.Context, j job.Job) (moved bool, err error) {
	if !ownKey(textAt(j.Headers, headerInboxKey)) {
		return false, nil
	}
	err = txn.Restart(ctx, func() error {
		tx, err := txn.Opener{Pool: c.pool, Limit: txn.ReplyLimit}.Begin(ctx, "consumer.begin", commitTimeout+abandonAfter)
		if err != nil {
			return err
		}
		defer txn.Rollback(ctx, tx)
		if err := j.Hold(ctx, tx); err != nil {
			return err
		}
		if err := c.settle(ctx, tx, j); err != nil {
			return err
		}
		if moved, err = c.deliverAgain(ctx, tx, j); !moved || err != nil {
			return err
		}
		if err := j.Finish(ctx, tx); err != nil {
			return err
		}
		return txn.Commit(ctx, "consumer.store", tx)
	})
	return moved, err
}

// claimBehind claims in a lane behind a savepoint, so that the transaction survives a refusal.
func claimBehind(ctx context.Context, tx pgx.Tx, it item) (claim delivery.Claim, err error) {
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return claim, pawl.Wrap("consumer.claim", err)
	}
	if claim, err = delivery.TakeInLane(ctx, savepoint, it.intent, it.lane); err == nil {
		return claim, pawl.Wrap("consumer.claim", savepoint.Commit(ctx))
	}
	if undone := savepoint.Rollback(ctx); undone != nil {
		return claim, pawl.Wrap("consumer.claim", undone)
	}
	return claim, mismatched(err)
}

// undecidable returns the error of a delivery that cannot be identified. A former mismatch keeps
// that code, because a retry may still take effect in addition to the first.
func undecidable(why error, decided bool) error {
	if !decided {
		return why
	}
	return &pawl.Error{Op: "consumer.claim", Code: delivery.CodeMismatch, Err: why}
}

// identifyAgain identifies a stored delivery by the current configuration of the consumer and, if
// it is a [pawl.Identifier], of the source.
func (c *Consumer) identifyAgain(j job.Job) (it item, err error) {
	d := receivedDelivery(j)
	if source, can := c.cfg.Source.(pawl.Identifier); can {
		now, fault := callback.Get("Source.Identify", func() pawl.Delivery { return source.Identify(d) })
		if fault != nil {
			return it, unreadable(fault)
		}
		if now.Key == "" {
			now.Key = d.Key
		}
		d = now
	}
	return c.identify(d)
}

// receivedDelivery returns a stored delivery as the source gave it.
func receivedDelivery(j job.Job) pawl.Delivery {
	d := storedDelivery(j)
	d.Key, d.KeyFault, d.VerifiedBy = textAt(j.Headers, headerSourceKey), textAt(j.Headers, headerKeyFault), textAt(j.Headers, headerVerifiedBy)
	exact, _ := j.Headers[headerExact].(map[string]any)
	restore := func(name string, to *string) {
		if octets, err := base64.StdEncoding.DecodeString(textAt(exact, name)); err == nil && len(octets) > 0 {
			*to = string(octets)
		}
	}
	for name, to := range map[string]*string{headerSourceKey: &d.Key, headerSemanticKey: &d.SemanticKey, headerOrderingKey: &d.OrderingKey,
		headerMessageID: &d.MessageID, headerLog: &d.Log, headerVerifiedBy: &d.VerifiedBy} {
		restore(name, to)
	}
	for name, value := range d.Attributes {
		restore(headerAttributes+"/"+name, &value)
		d.Attributes[name] = value
	}
	if print, err := hex.DecodeString(textAt(j.Headers, headerFingerprint)); err == nil {
		copy(d.Fingerprint[:], print)
	}
	return d
}
