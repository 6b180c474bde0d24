package consumer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/job"
)

// retryStored runs the worker of stored deliveries until ctx ends. It starts the worker again if it
// fails, for instance because the database is unavailable.
func (c *Consumer) retryStored(ctx context.Context) {
	for {
		err := c.retries.Run(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "consumer.retries", Err: err})
		pace.Sleep(ctx, time.Second)
	}
}

// retry calls the handler for a stored delivery, in the transaction of the delivery's job. It
// settles the inbox row first: if the job no longer owns the delivery (P4020), the handler is not
// called.
func (c *Consumer) retry(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
	d := storedDelivery(t.Job)
	if err := c.settle(ctx, tx, t.Job); err != nil {
		return err
	}
	if moved, err := c.deliverAgain(ctx, tx, t.Job); moved || err != nil {
		return err
	}
	if c.handler.exclusive != nil {
		err := exclude(ctx, tx, c.handler.exclusive(d))
		if verdict.IsBusy(pawl.CodeOf(err)) {
			return job.Snooze(pace.Jittered(time.Second))
		}
		if err != nil {
			return err
		}
	}
	return c.retryGated(ctx, tx, t.Job, d)
}

// retrySQL is retry for a handler that takes a *sql.Tx, on the same transaction.
func (c *Consumer) retrySQL(ctx context.Context, tx *sql.Tx, t job.Task[[]byte]) error {
	return c.retry(ctx, txn.Beneath(tx), t)
}

// retryGated passes a stored delivery through its gate, if there is one. A passed delivery is
// handled, and a stale one is done. An early one waits again, even beyond HoldLimit, since it is
// already stored. Usually the delivery before it has passed and made this job due.
func (c *Consumer) retryGated(ctx context.Context, tx pgx.Tx, j job.Job, d pawl.Delivery) error {
	sequence, err := c.sequenceOf(d)
	if err != nil {
		return pawl.Final(err)
	}
	it := item{Delivery: d, sequence: sequence, intent: pawl.Intent{Key: textAt(j.Headers, headerInboxKey)}}
	p, err := c.passGate(ctx, tx, it)
	switch {
	case verdict.IsBusy(pawl.CodeOf(err)) && errors.As(err, new(claimError)):
		return job.Snooze(pace.Jittered(time.Second))
	case err != nil || p.admission == delivery.Passed:
		return err
	case p.admission == repeated:
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: "consumer.semantic", JobID: j.ID})
		return nil
	case p.admission == delivery.Stale:
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventSuperseded, Op: "consumer.sequence_gate", JobID: j.ID})
		return nil
	}
	waited := time.Since(j.CreatedAt)
	if waited >= c.handler.gate.HoldTimeout && (p.next == nil || *p.next >= sequence.Seq) {
		c.emitOf(ctx, d, pawl.Event{Kind: pawl.EventGap, Op: "consumer.sequence_gate", JobID: j.ID,
			Err: fmt.Errorf("number %d of %s is the first that waits, for %v", sequence.Seq, sequence.Resource, waited.Round(time.Second))})
	}
	_, err = delivery.HoldAgain(ctx, tx, *sequence, it.intent.Key, j.ID, c.handler.gate.HoldTimeout)
	return err
}

// workLeased handles a stored delivery without a transaction. It returns nil only after the
// transaction that settled the delivery has committed.
func (c *Consumer) workLeased(ctx context.Context, j job.Task[[]byte]) error {
	if moved, err := c.moved(ctx, j.Job); moved || err != nil {
		return err
	}
	t := &try{delivery: storedDelivery(j.Job), consumer: c, job: j.Job}
	call := c.handler.try
	switch repeated, err := c.reserve(ctx, t); {
	case repeated, err != nil:
		return err
	case c.handler.form == triggered:
		call = c.retrigger
	}
	if err := call(ctx, t); err != nil {
		return err
	}
	if t.ended || t.failure != nil {
		return t.failure
	}
	return t.end(ctx, false, func(context.Context, pgx.Tx) error { return nil })
}

func (c *Consumer) retrigger(ctx context.Context, t *try) error {
	err := c.handler.trigger(ctx, t.delivery)
	if rowHolds(err) {
		return nil
	}
	return err
}

// settle marks the inbox row as processed. If the job no longer owns it, the error is final.
func (c *Consumer) settle(ctx context.Context, tx pgx.Tx, j job.Job) error {
	err := delivery.Settle(ctx, tx, c.cfg.Name, textAt(j.Headers, headerInboxKey), j.ID)
	if errors.Is(err, pawl.ErrFenceLost) {
		return pawl.Final(err)
	}
	return err
}

func storedDelivery(j job.Job) pawl.Delivery {
	d := pawl.Delivery{Key: textAt(j.Headers, headerKey), MessageID: textAt(j.Headers, headerMessageID), Payload: j.Payload, Receives: j.Attempt}
	if attributes, ok := j.Headers[headerAttributes].(map[string]any); ok && len(attributes) > 0 {
		d.Attributes = make(map[string]string, len(attributes))
		for name := range attributes {
			d.Attributes[name] = textAt(attributes, name)
		}
	}
	d.OrderingKey, d.SemanticKey = textAt(j.Headers, headerOrderingKey), textAt(j.Headers, headerSemanticKey)
	d.Log = textAt(j.Headers, headerLog)
	d.Offset, _ = strconv.ParseInt(textAt(j.Headers, headerOffset), 10, 64)     // absent: zero
	d.SentAt, _ = time.Parse(time.RFC3339Nano, textAt(j.Headers, headerSentAt)) // absent: zero
	d.ProducedAt, _ = time.Parse(time.RFC3339Nano, textAt(j.Headers, headerProducedAt))
	return d
}

func textAt(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}
