package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/verdict"
)

// repeated is the admission of a delivery whose semantic key took effect before, under another key.
const repeated delivery.Admission = "repeated"

// admitted combines the answers of the gate and of the semantic key.
type admitted struct {
	admission delivery.Admission
	next      *int64         // the lowest number that the gate holds, or nil
	first     delivery.Claim // claim of the semantic key, if the admission is repeated
}

// unlessRepeated calls fn unless the delivery's semantic key took effect before. It claims that key
// behind the handler's savepoint, so a failed handler leaves the key free.
func (c *Consumer) unlessRepeated(ctx context.Context, tx pgx.Tx, d pawl.Delivery, inboxKey string, fn func() error) (p admitted, err error) {
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

// semanticDuplicate reports, for a delivery whose handler is not called now, whether its semantic
// key took effect before. It keeps no claim, and returns false while another transaction has one.
func (c *Consumer) semanticDuplicate(ctx context.Context, tx pgx.Tx, it item) (first delivery.Claim, yes bool, err error) {
	if it.SemanticKey == "" {
		return first, false, nil
	}
	first, err = c.askSemantic(ctx, tx, it.Delivery, it.intent.Key)
	if verdict.IsBusy(pawl.CodeOf(err)) {
		return first, false, nil
	}
	return first, err == nil && !first.Fresh, err
}

// askSemantic claims the semantic key and rolls the claim back.
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
