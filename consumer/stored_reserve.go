package consumer

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/job"
)

const (
	// Pauses while another delivery of the semantic key is being worked on, or waits for a verdict.
	workingLook = time.Second
	verdictLook = 15 * time.Second
)

// reserve reserves the delivery's semantic key for this attempt, before a handler without a
// transaction is called. If the key took effect before, reserve settles the delivery as a
// duplicate. If another delivery of the key is being worked on, this one is retried later.
//
// reserve: a crash after it costs nothing, since the reservation ends with the attempt.
func (c *Consumer) reserve(ctx context.Context, t *try) (repeated bool, err error) {
	if t.delivery.SemanticKey == "" || c.handler.form == triggered {
		return false, nil
	}
	var first delivery.Claim
	err = txn.Restart(ctx, func() error {
		tx, err := txn.Opener{Pool: c.pool, Limit: txn.ReplyLimit}.Begin(ctx, "consumer.begin", commitTimeout+abandonAfter)
		if err != nil {
			return err
		}
		defer txn.Rollback(ctx, tx)
		if err := t.job.Hold(ctx, tx); err != nil {
			return err
		}
		busy, err := delivery.Reserve(ctx, tx, c.workingOf(t.delivery), t.job.ID)
		// Ask after the reservation: the previous holder has committed its outcome by then.
		if err == nil && busy == "" {
			first, err = c.askSemantic(ctx, tx, t.delivery, textAt(t.job.Headers, headerInboxKey))
		}
		switch {
		case verdict.IsBusy(pawl.CodeOf(err)), busy == "processing":
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
	c.emitOf(ctx, t.delivery, duplicateDisposition("consumer.semantic", first).event)
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

// unreserve releases the semantic key in the transaction that ends the delivery.
func (c *Consumer) unreserve(ctx context.Context, tx pgx.Tx, t *try) error {
	if t.delivery.SemanticKey == "" || c.handler.form == triggered {
		return nil
	}
	return delivery.Unreserve(ctx, tx, c.workingOf(t.delivery), t.job.ID)
}
