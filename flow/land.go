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
func (f *Flow) land(ctx context.Context, tx pgx.Tx, claim inbox.Claim, d pawl.Delivery, intent pawl.Intent, failure error) (pawl.Receipt, error) {
	code := pawl.CodeOf(failure)
	switch {
	case errors.Is(failure, txn.ErrEnded): // the claim may have become durable; claiming again will tell
		txn.Rollback(ctx, tx)
		return f.landAfresh(ctx, d, intent, failure)
	case ctx.Err() != nil, code == "40001", code == "40P01", pawl.MayHaveHappened(failure):
		return pawl.Receipt{}, failure // stopping; or the whole transaction again; or ask what became of it
	case errors.Is(failure, txn.ErrLost) && pawl.Unreachable(failure):
		return pawl.Receipt{}, failure // the database went away: not the delivery's fault, uncharged
	case errors.Is(failure, txn.ErrLost):
		txn.Rollback(ctx, tx)
		return f.landAfresh(ctx, d, intent, failure)
	}
	return f.landIn(ctx, tx, claim, d, intent, failure)
}

// landAfresh lands in a transaction of its own, when the handler's is gone. Somebody may have won in between; then the
// database holds their outcome, and that is the answer.
func (f *Flow) landAfresh(ctx context.Context, d pawl.Delivery, intent pawl.Intent, failure error) (pawl.Receipt, error) {
	tx, claim, err := f.claim(ctx, intent)
	if err != nil {
		return pawl.Receipt{}, err
	}
	defer txn.Rollback(ctx, tx)
	if !claim.Fresh {
		return f.duplicate(ctx, d, claim), nil
	}
	return f.landIn(ctx, tx, claim, d, intent, failure)
}

func (f *Flow) landIn(ctx context.Context, tx pgx.Tx, claim inbox.Claim, d pawl.Delivery, intent pawl.Intent, failure error) (pawl.Receipt, error) {
	dead := pawl.IsFinal(failure) || f.cfg.MaxAttempts == 1
	jobID, err := claim.Land(ctx, tx, inbox.Landing{
		Queue: f.queue, Kind: landedKind, Body: d.Body, Headers: headersOf(d, intent.Key),
		Attempts: 1, MaxAttempts: f.cfg.MaxAttempts, RetryIn: f.cfg.Backoff.After(1), Failure: failure, Dead: dead,
	})
	if err != nil {
		return pawl.Receipt{}, err
	}
	if err := txn.Commit(ctx, "flow.land", tx); err != nil {
		return pawl.Receipt{}, err
	}
	kind := pawl.EventRetryable
	if dead {
		kind = pawl.EventFinal
	}
	f.emitOf(ctx, d, pawl.Event{Kind: kind, Op: "flow.land", JobID: jobID, Attempt: 1, Err: failure})
	return answered(d), nil
}

// landSuspect lands a delivery that came several times and never left a row. Either nobody had time for it, or it kills
// its process: from the database it runs alone, and its crashes are counted.
func (f *Flow) landSuspect(ctx context.Context, d pawl.Delivery, intent pawl.Intent) (pawl.Receipt, time.Duration) {
	return f.landUnhandled(ctx, d, intent, inbox.Landing{Suspect: true, MaxAttempts: f.cfg.MaxAttempts}, pawl.EventSuspect, nil)
}

// bury stores a delivery that no retry can help, with its payload and the reason, among the dead letters. Its inbox key
// is made from what identifies this very message, so that a redelivery is a duplicate and not a second dead letter.
func (f *Flow) bury(ctx context.Context, d pawl.Delivery, why error) (pawl.Receipt, time.Duration) {
	kind := pawl.EventUnfit
	if errors.Is(why, pawl.ErrMessageReused) {
		kind = pawl.EventMismatch
	}
	print := pawl.FingerprintOf(d.Body)
	what := pawl.FingerprintOf([]byte(d.Key), print[:])
	if d.Key == "" {
		what = pawl.FingerprintOf([]byte(d.MessageID), print[:])
	}
	intent := pawl.Intent{Scope: f.cfg.Consumer, Key: reservedPrefix + string(kind) + "/" + what.String(), Fingerprint: print}
	return f.landUnhandled(ctx, d, intent, inbox.Landing{Dead: true, Failure: why}, kind, why)
}

// reservedPrefix begins inbox keys of our own; a sender's key must not.
const reservedPrefix = "pawl/"

// landUnhandled lands a delivery whose handler was never entered.
func (f *Flow) landUnhandled(ctx context.Context, d pawl.Delivery, intent pawl.Intent, l inbox.Landing, kind pawl.EventKind, why error) (pawl.Receipt, time.Duration) {
	l.Queue, l.Kind, l.Body, l.Headers = f.queue, landedKind, d.Body, headersOf(d, intent.Key)
	var r pawl.Receipt
	err := txn.Restart(ctx, func() error {
		tx, claim, err := f.claim(ctx, intent)
		if err != nil {
			return err
		}
		defer txn.Rollback(ctx, tx)
		if !claim.Fresh {
			r = f.duplicate(ctx, d, claim)
			return nil
		}
		jobID, err := claim.Land(ctx, tx, l)
		if err != nil {
			return err
		}
		if err := txn.Commit(ctx, "flow.land", tx); err != nil {
			return err
		}
		f.emitOf(ctx, d, pawl.Event{Kind: kind, Op: "flow.land", JobID: jobID, Err: why})
		r = answered(d)
		return nil
	})
	if err != nil {
		return f.undecided(ctx, d, "flow.land", err)
	}
	return r, 0
}

// Names of the headers a landed delivery keeps beside its body.
const (
	headerKey        = "pawl-key"
	headerMessageID  = "pawl-message-id"
	headerSentAt     = "pawl-sent-at"
	headerInboxKey   = "pawl-inbox-key"
	headerAttributes = "attributes"
)

func headersOf(d pawl.Delivery, inboxKey string) map[string]any {
	attributes := make(map[string]any, len(d.Attributes))
	for name, value := range d.Attributes {
		attributes[storable(name)] = storable(value)
	}
	h := map[string]any{headerInboxKey: inboxKey, headerKey: storable(d.Key), headerMessageID: storable(d.MessageID), headerAttributes: attributes}
	if !d.SentAt.IsZero() {
		h[headerSentAt] = d.SentAt.UTC().Format(time.RFC3339Nano)
	}
	return h
}

// storable replaces what jsonb refuses: NUL (22P05) and invalid UTF-8. The body is stored as octets and needs no such
// thing.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
