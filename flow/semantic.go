package flow

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
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

// unlessRepeated calls fn for a delivery whose semantic key, if it has one, has not taken effect. It claims that key behind the
// handler's savepoint: what fails leaves it to others.
func (f *Flow) unlessRepeated(ctx context.Context, tx pgx.Tx, d pawl.Delivery, inboxKey string, fn func() error) (inbox.Verdict, error) {
	if d.SemanticKey != "" {
		claim, err := inbox.TakeFor(ctx, tx, f.semanticOf(d), inboxKey)
		if err != nil {
			return "", claimError{err}
		}
		if !claim.Fresh {
			return repeated, nil
		}
	}
	return inbox.Passed, fn()
}

// skipRepeated tells of a delivery that had no effect of its own.
func (f *Flow) skipRepeated(ctx context.Context, d pawl.Delivery, jobID int64) {
	f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: "flow.semantic", JobID: jobID})
}
