package flow

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/txn"
)

// land gives a delivery whose handler failed to a durable job, in the transaction that claimed it, its savepoint rolled
// back: nobody can win in between. The delivery may then be acknowledged; the row is its retry ledger.
func (f *Flow) land(ctx context.Context, tx *txn.Opened, claim inbox.Claim, it item, failure error) (pawl.Receipt, error) {
	switch {
	case !lostForGood(ctx, failure):
	case chargeable(ctx, failure):
		txn.Rollback(ctx, tx)
		return f.landAfresh(ctx, it, failure)
	default:
		return pawl.Receipt{}, failure
	}
	if f.cfg.OnError == SourceRetries && !pawl.IsFinal(failure) {
		return pawl.Receipt{}, leftToSource{failure}
	}
	l, kind := f.failed(failure)
	return f.landIn(ctx, tx, claim, it, l, kind, failure)
}

// A leftToSource is the failure of a handler whose delivery the source is to hand out again.
type leftToSource struct{ error }

func (l leftToSource) Unwrap() error { return l.error }

// lostForGood reports whether a failed handler's transaction can record nothing any more.
func lostForGood(ctx context.Context, failure error) bool {
	code := pawl.CodeOf(failure)
	return errors.Is(failure, txn.ErrEnded) || errors.Is(failure, txn.ErrLost) ||
		ctx.Err() != nil || code == "40001" || code == "40P01" || pawl.MayHaveHappened(failure)
}

// chargeable reports whether such a failure is the delivery's own: its handler ended the transaction (the claim may have become
// durable; claiming again will tell) or overran its limit. What is not is a stop; a lost race: the whole transaction again; a
// COMMIT without an answer: ask; and a database that went away.
func chargeable(ctx context.Context, failure error) bool {
	code := pawl.CodeOf(failure)
	switch {
	case errors.Is(failure, txn.ErrEnded):
		return true
	case ctx.Err() != nil, code == "40001", code == "40P01", pawl.MayHaveHappened(failure):
		return false
	}
	return errors.Is(failure, txn.ErrLost) && !pawl.Unreachable(failure)
}

// landAfresh lands in a transaction of its own, when the handler's is gone. Somebody may have won in between; then the
// database holds their outcome, and that is the answer.
func (f *Flow) landAfresh(ctx context.Context, it item, failure error) (pawl.Receipt, error) {
	tx, claim, err := f.claim(ctx, it)
	if err != nil {
		return pawl.Receipt{}, err
	}
	defer txn.Rollback(ctx, tx)
	if !claim.Fresh {
		f.emitEnded(ctx, it.Delivery, failure)
		return f.duplicate(ctx, it.Delivery, "flow.claim", claim), nil
	}
	if endedByText(failure) {
		failure = pawl.Final(failure) // it rolled back the claim, and may have committed what it wrote then: never again
	}
	l, kind := f.failed(failure)
	return f.landIn(ctx, tx, claim, it, l, kind, failure)
}

// endedByText reports whether a handler has ended its transaction in a way that may have made rows durable.
func endedByText(failure error) bool {
	return errors.Is(failure, txn.ErrEnded) && pawl.MayHaveHappened(failure)
}

// emitEnded tells of a handler that committed the transaction it was lent: what it wrote before is durable, once, and the delivery is a
// duplicate from then on.
func (f *Flow) emitEnded(ctx context.Context, d pawl.Delivery, failure error) {
	if errors.Is(failure, txn.ErrEnded) {
		f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventTrouble, Op: "flow.handle", Err: failure})
	}
}

// failed is how a delivery lands whose handler failed.
func (f *Flow) failed(failure error) (inbox.Landing, pawl.EventKind) {
	l := inbox.Landing{Attempts: 1, MaxAttempts: f.cfg.MaxAttempts, RetryIn: f.cfg.Backoff.After(1), Failure: failure,
		Dead: pawl.IsFinal(failure) || f.cfg.MaxAttempts == 1}
	if l.Dead {
		return l, pawl.EventFinal
	}
	return l, pawl.EventRetryable
}

// untried is how a delivery lands that no handler has met.
func (f *Flow) untried() inbox.Landing { return inbox.Landing{MaxAttempts: f.cfg.MaxAttempts} }

// landUntried lands what no handler has met, unless it took effect under another key.
func (f *Flow) landUntried(ctx context.Context, tx pgx.Tx, claim inbox.Claim, it item, l inbox.Landing, kind pawl.EventKind) (pawl.Receipt, error) {
	first, took, err := f.tookEffect(ctx, tx, it)
	switch {
	case err != nil:
		return pawl.Receipt{}, err
	case took:
		return f.absorb(ctx, tx, it.Delivery, first), nil
	}
	return f.landIn(ctx, tx, claim, it, l, kind, nil)
}

// landIn lands in the transaction that claimed, and commits it.
func (f *Flow) landIn(ctx context.Context, tx pgx.Tx, claim inbox.Claim, it item, l inbox.Landing, kind pawl.EventKind, why error) (pawl.Receipt, error) {
	jobID, err := f.landRow(ctx, tx, claim, it, l)
	if err != nil {
		return pawl.Receipt{}, err
	}
	if err := txn.Commit(ctx, "flow.land", tx); err != nil {
		return pawl.Receipt{}, err
	}
	f.emitOf(ctx, it.Delivery, pawl.Event{Kind: kind, Op: "flow.land", JobID: jobID, Attempt: l.Attempts, Err: why})
	return answered(it.Delivery), nil
}

func (f *Flow) landRow(ctx context.Context, tx pgx.Tx, claim inbox.Claim, it item, l inbox.Landing) (jobID int64, err error) {
	l.Queue, l.Kind, l.Body, l.Headers = f.queue, landedKind, it.Body, headersOf(it)
	if f.cfg.Keep == KeepAll || f.cfg.Keep == KeepFailed && l.Failure != nil {
		batch := &pgx.Batch{}
		f.queueKeep(batch, it)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return 0, pawl.Wrap("flow.keep", err)
		}
	}
	return claim.Land(ctx, tx, l)
}

// landSuspect lands a delivery that came several times and never left a row. Either nobody had time for it, or it kills
// its process: from the database it runs alone, and its crashes are counted.
func (f *Flow) landSuspect(ctx context.Context, it item) (pawl.Receipt, time.Duration) {
	l := f.untried()
	l.Suspect = true
	return f.landUnhandled(ctx, it, l, pawl.EventSuspect, nil)
}

// bury stores a delivery that no retry can help, with its payload and the reason, among the dead letters. Its inbox key
// is made from what identifies this very message, so that a redelivery is a duplicate and not a second dead letter.
func (f *Flow) bury(ctx context.Context, d pawl.Delivery, why error) (pawl.Receipt, time.Duration) {
	kind := pawl.EventUnfit
	if errors.Is(why, pawl.ErrMessageReused) {
		kind = pawl.EventMismatch
	}
	print := printOf(d)
	what := pawl.FingerprintOf([]byte(d.Key), print[:])
	if d.Key == "" {
		what = pawl.FingerprintOf([]byte(d.MessageID), print[:])
	}
	intent := pawl.Intent{Scope: f.cfg.Consumer, Key: reservedPrefix + string(kind) + "/" + what.String(), Fingerprint: print}
	return f.landUnhandled(ctx, item{Delivery: d, intent: intent}, inbox.Landing{Dead: true, Failure: why}, kind, why)
}

// reservedPrefix begins inbox keys of our own; a sender's key must not.
const reservedPrefix = "pawl/"

// landUnhandled lands a delivery whose handler was never entered.
func (f *Flow) landUnhandled(ctx context.Context, it item, l inbox.Landing, kind pawl.EventKind, why error) (pawl.Receipt, time.Duration) {
	var r pawl.Receipt
	err := txn.Restart(ctx, func() error {
		tx, claim, err := f.claim(ctx, it)
		if err != nil {
			return err
		}
		defer txn.Rollback(ctx, tx)
		if !claim.Fresh {
			r = f.duplicate(ctx, it.Delivery, "flow.claim", claim)
			return nil
		}
		if !l.Dead && f.stale(claim, it.Delivery) != nil {
			r, err = f.landStale(ctx, tx, claim, it)
			return err
		}
		if l.Dead {
			r, err = f.landIn(ctx, tx, claim, it, l, kind, why)
		} else {
			r, err = f.landUntried(ctx, tx, claim, it, l, kind)
		}
		return err
	})
	if err != nil {
		return f.undecided(ctx, it.Delivery, "flow.land", err)
	}
	return r, 0
}

// Names of the headers a landed delivery keeps beside its body.
const (
	headerKey         = "pawl-key"
	headerSemanticKey = "pawl-semantic-key"
	headerMessageID   = "pawl-message-id"
	headerSentAt      = "pawl-sent-at"
	headerProducedAt  = "pawl-produced-at"
	headerOrderingKey = "pawl-ordering-key"
	headerInboxKey    = "pawl-inbox-key"
	headerAttributes  = "attributes"
)

func headersOf(it item) map[string]any {
	attributes := make(map[string]any, len(it.Attributes))
	for name, value := range it.Attributes {
		attributes[storable(name)] = storable(value)
	}
	h := envelopeOf(it)
	h[headerAttributes] = attributes
	return h
}

// landingOf is how a delivery that is kept would land, for an operator who replays it.
func (f *Flow) landingOf(it item) inbox.Replay {
	r := inbox.Replay{Queue: f.queue, Kind: landedKind, Lane: it.lane.Name, LanePolicy: it.lane.Policy, MaxAttempts: f.cfg.MaxAttempts, Headers: envelopeOf(it)}
	if it.SemanticKey != "" {
		r.Semantic = storable(f.semanticOf(it.Delivery).Key)
	}
	return r
}

// envelopeOf is what a delivery needs beside its body and its attributes, to be handled later.
func envelopeOf(it item) map[string]any {
	h := map[string]any{headerInboxKey: it.intent.Key, headerKey: storable(it.Key), headerMessageID: storable(it.MessageID)}
	for name, value := range map[string]string{headerOrderingKey: it.OrderingKey, headerSemanticKey: it.SemanticKey} {
		if value != "" {
			h[name] = storable(value)
		}
	}
	for name, at := range map[string]time.Time{headerSentAt: it.SentAt, headerProducedAt: it.ProducedAt} {
		if !at.IsZero() {
			h[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	return h
}

// storable replaces what jsonb refuses: NUL (22P05) and invalid UTF-8. The body is stored as octets and needs no such
// thing.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
