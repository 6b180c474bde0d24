package consumer

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/job"
)

// repeated is the admission of a delivery whose semantic key took effect before, under another key.
const repeated delivery.Admission = "repeated"

// A passage is what the gate and the semantic key said of a delivery.
type passage struct {
	admission delivery.Admission
	next      *int64         // the number that the gate waits for
	first     delivery.Claim // of the semantic key, if the admission is repeated
}

// unlessRepeated calls fn for a delivery whose semantic key, if it has one, has not taken effect. It claims that key behind the
// handler's savepoint: what fails leaves it to others.
func (c *Consumer) unlessRepeated(ctx context.Context, tx pgx.Tx, d pawl.Delivery, inboxKey string, fn func() error) (p passage, err error) {
	if d.SemanticKey != "" {
		p.first, err = delivery.TakeFor(ctx, tx, c.semanticOf(d), inboxKey)
		if err != nil {
			return p, claimError{err}
		}
		if !p.first.Fresh {
			p.admission = repeated
			return p, nil
		}
	}
	p.admission = delivery.Passed
	return p, fn()
}

// tookEffect asks, for a delivery whose handler is not entered now, whether its semantic key took effect before. It keeps nothing of the question.
// While another transaction decides that, the answer is no.
func (c *Consumer) tookEffect(ctx context.Context, tx pgx.Tx, it item) (first delivery.Claim, yes bool, err error) {
	if it.SemanticKey == "" {
		return first, false, nil
	}
	first, err = c.askSemantic(ctx, tx, it.Delivery, it.intent.Key)
	if pawl.CodeOf(err) == lockNotHad {
		return first, false, nil
	}
	return first, err == nil && !first.Fresh, err
}

// askSemantic claims the semantic key and takes the claim back.
func (c *Consumer) askSemantic(ctx context.Context, tx pgx.Tx, d pawl.Delivery, inboxKey string) (first delivery.Claim, err error) {
	question, err := tx.Begin(ctx)
	if err != nil {
		return first, pawl.Wrap("consumer.semantic", err)
	}
	first, err = delivery.TakeFor(ctx, question, c.semanticOf(d), inboxKey)
	if undone := question.Rollback(ctx); undone != nil {
		return first, pawl.Wrap("consumer.semantic", undone)
	}
	return first, err
}

const (
	workingLook = time.Second      // between two looks whether another delivery of the semantic key is still being worked on
	verdictLook = 15 * time.Second // or still waits for a verdict on a step
)

// reserve is asked before a handler that has no transaction is called. If the delivery's semantic key took effect before, the delivery is settled
// as a duplicate, and nothing is called. If another delivery of it is being worked on, this one is tried again later. Otherwise it is this
// one's, until its attempt has ended.
//
// reserve: a crash after it costs nothing, since the reservation ends with the attempt.
func (c *Consumer) reserve(ctx context.Context, t *try) (repeated bool, err error) {
	if t.delivery.SemanticKey == "" || c.handler.form == triggered {
		return false, nil
	}
	var first delivery.Claim
	err = txn.Restart(ctx, func() error {
		tx, err := txn.Opener{Pool: c.pool, Hands: &c.hands, Limit: txn.AnswerLimit}.Begin(ctx, "consumer.begin", commitTimeout+abandonAfter)
		if err != nil {
			return err
		}
		defer txn.Rollback(ctx, tx)
		if err := t.job.Hold(ctx, tx); err != nil {
			return err
		}
		busy, err := delivery.Reserve(ctx, tx, c.workingOf(t.delivery), t.job.ID)
		if err == nil && busy == "" { // asked behind the reservation: whoever had it before has committed what it did
			first, err = c.askSemantic(ctx, tx, t.delivery, textAt(t.job.Headers, headerInboxKey))
		}
		switch {
		case pawl.CodeOf(err) == lockNotHad, busy == "processing":
			return job.Snooze(pace.Jittered(workingLook))
		case busy != "":
			return job.Snooze(pace.Jittered(verdictLook))
		case err != nil:
			return err
		}
		if repeated = !first.Fresh; repeated {
			if err := c.settleRepeated(ctx, tx, t); err != nil {
				return err
			}
		}
		return txn.Commit(ctx, "consumer.reserve", tx)
	})
	if err != nil || !repeated {
		return false, err
	}
	c.emitOf(ctx, t.delivery, known("consumer.semantic", first).event)
	return true, nil
}

// settleRepeated ends a delivery whose semantic key took effect before.
func (c *Consumer) settleRepeated(ctx context.Context, tx pgx.Tx, t *try) error {
	if err := c.settle(ctx, tx, t.job); err != nil {
		return err
	}
	if err := c.unreserve(ctx, tx, t); err != nil {
		return err
	}
	return t.job.Finish(ctx, tx)
}

// unreserve gives up the semantic key in the transaction that ends the delivery.
func (c *Consumer) unreserve(ctx context.Context, tx pgx.Tx, t *try) error {
	if t.delivery.SemanticKey == "" || c.handler.form == triggered {
		return nil
	}
	return delivery.Unreserve(ctx, tx, c.workingOf(t.delivery), t.job.ID)
}
