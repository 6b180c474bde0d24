package flow

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/txn"
)

// semanticPrefix begins the inbox keys that stand for semantic keys.
const semanticPrefix = reservedPrefix + "semantic/"

// repeated is the verdict on a delivery whose semantic key took effect before, under another key.
const repeated inbox.Verdict = "repeated"

// semanticOf is what the inbox remembers of a semantic key. Payloads under it may differ, so they do not count.
func (f *Flow) semanticOf(d pawl.Delivery) pawl.Intent {
	key := semanticPrefix + d.SemanticKey
	if len(key) > pawl.MaxKey {
		key = semanticPrefix + pawl.FingerprintOf([]byte(d.SemanticKey)).String()
	}
	return pawl.Intent{Scope: f.cfg.Consumer, Key: key, Fingerprint: pawl.FingerprintOf()}
}

// A passage is what the gate and the semantic key said of a delivery.
type passage struct {
	verdict inbox.Verdict
	next    *int64      // the number that the gate waits for
	first   inbox.Claim // of the semantic key, if the verdict is repeated
}

// unlessRepeated calls fn for a delivery whose semantic key, if it has one, has not taken effect. It claims that key behind the
// handler's savepoint: what fails leaves it to others.
func (f *Flow) unlessRepeated(ctx context.Context, tx pgx.Tx, d pawl.Delivery, inboxKey string, fn func() error) (p passage, err error) {
	if d.SemanticKey != "" {
		p.first, err = inbox.TakeFor(ctx, tx, f.semanticOf(d), inboxKey)
		if err != nil {
			return p, claimError{err}
		}
		if !p.first.Fresh {
			p.verdict = repeated
			return p, nil
		}
	}
	p.verdict = inbox.Passed
	return p, fn()
}

// tookEffect asks, for a delivery whose handler is not entered now, whether its semantic key took effect before. It keeps nothing of the question.
// While another transaction decides that, the answer is no.
func (f *Flow) tookEffect(ctx context.Context, tx pgx.Tx, it item) (first inbox.Claim, yes bool, err error) {
	if it.SemanticKey == "" {
		return first, false, nil
	}
	question, err := tx.Begin(ctx)
	if err != nil {
		return first, false, pawl.Wrap("flow.semantic", err)
	}
	first, err = inbox.TakeFor(ctx, question, f.semanticOf(it.Delivery), it.intent.Key)
	if undone := question.Rollback(ctx); undone != nil {
		return first, false, pawl.Wrap("flow.semantic", undone)
	}
	if pawl.CodeOf(err) == lockNotHad {
		return first, false, nil
	}
	return first, err == nil && !first.Fresh, err
}

// absorb answers a delivery that took effect under another key before, and keeps nothing of it: ids may be new each time one captured request
// is sent again. The transaction that claimed it is rolled back.
func (f *Flow) absorb(ctx context.Context, tx pgx.Tx, d pawl.Delivery, first inbox.Claim) pawl.Receipt {
	txn.Rollback(ctx, tx)
	return f.duplicate(ctx, d, "flow.semantic", first)
}
