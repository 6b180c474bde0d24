package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/directive"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/internal/txn"
)

// failureDisposition ends a delivery whose handler failed: a job retries it, with the error in its
// history, or it is a dead letter. If the handler ended its transaction itself, its writes may be
// durable, so it is not retried automatically. A delivery that the handler cancels is stored
// untried. Its job then cancels itself, and an operator can retry the row.
func (c *Consumer) failureDisposition(failure error) *disposition {
	if endedByText(failure) {
		failure = pawl.Final(failure)
	}
	s := delivery.Storage{Attempts: 1, MaxAttempts: c.handler.MaxAttempts, RetryIn: c.handler.Backoff.After(1), Failure: failure,
		Dead: pawl.IsFinal(failure) || c.handler.MaxAttempts == 1, Suspect: errors.Is(failure, txn.ErrTaken)}
	switch a := directive.Of(failure); a.What {
	case directive.Snooze:
		return storedDisposition(delivery.Storage{MaxAttempts: c.handler.MaxAttempts, RetryIn: a.Within()}, pawl.EventSnoozed)
	case directive.Wait:
		return storedDisposition(delivery.Storage{MaxAttempts: c.handler.MaxAttempts, RetryIn: min(a.Within(), a.WaitLimit()), Failure: failure}, pawl.EventSnoozed)
	case directive.Cancel:
		return c.untriedDisposition(pawl.EventStored)
	case directive.RetryAfter:
		s.RetryIn = a.Within()
	}
	if s.Dead {
		return storedDisposition(s, pawl.EventFailed)
	}
	return storedDisposition(s, pawl.EventRetryable)
}

// untriedDisposition stores a delivery before the first call of its handler.
func (c *Consumer) untriedDisposition(kind pawl.EventKind) *disposition {
	return storedDisposition(delivery.Storage{MaxAttempts: c.handler.MaxAttempts}, kind)
}

// deadOutsideLane makes an untried delivery a dead letter that does not block its lane.
func (c *Consumer) deadOutsideLane(kind pawl.EventKind, why error) *disposition {
	return storedDisposition(delivery.Storage{MaxAttempts: c.handler.MaxAttempts, Dead: true, Outside: true, Failure: why}, kind)
}

// deadDisposition makes a dead letter of a delivery without an intent.
func deadDisposition(kind pawl.EventKind, why error) *disposition {
	return storedDisposition(delivery.Storage{Dead: true, Failure: why}, kind)
}

func storedDisposition(s delivery.Storage, kind pawl.EventKind) *disposition {
	return &disposition{store: &s, event: pawl.Event{Kind: kind, Op: "consumer.store", Attempt: s.Attempts, Err: s.Failure}}
}

// commitStored stores the delivery as a durable job, in the transaction that claimed it, and
// commits. From then on the job counts the retries.
func (c *Consumer) commitStored(ctx context.Context, tx pgx.Tx, claim delivery.Claim, it item, disp *disposition) (jobID int64, err error) {
	if jobID, err = c.storeRow(ctx, tx, claim, it, *disp.store); err != nil {
		return 0, err
	}
	if disp.held {
		if err := delivery.Hold(ctx, tx, *it.sequence, jobID); err != nil {
			return 0, err
		}
	}
	return jobID, txn.Commit(ctx, "consumer.store", tx)
}

func (c *Consumer) storeRow(ctx context.Context, tx pgx.Tx, claim delivery.Claim, it item, s delivery.Storage) (jobID int64, err error) {
	s.Queue, s.Kind, s.Payload, s.Headers = c.queue, storedKind, it.Payload, headersOf(it)
	if it.omitted == nil && (c.cfg.Keep.Mode == KeepAll || c.cfg.Keep.Mode == KeepFailed && s.Failure != nil) {
		batch := &pgx.Batch{}
		c.queueKeep(batch, it)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return 0, pawl.Wrap("consumer.keep", err)
		}
	}
	if !s.Dead {
		c.bound.stored.Add(1)
	}
	return claim.Store(ctx, tx, s)
}

// keepsAttributes reports whether all attributes of a delivery are kept with it.
func (c *Consumer) keepsAttributes(it item) bool {
	for name := range it.Attributes {
		if !slices.Contains(c.cfg.Keep.Attributes, name) {
			return false
		}
	}
	return true
}

// queueKeep queues the statement that keeps a delivery, with the attributes that Keep allows.
func (c *Consumer) queueKeep(b *pgx.Batch, it item) {
	headers := map[string]any{}
	for _, name := range c.cfg.Keep.Attributes {
		if value, there := it.Attributes[name]; there {
			headers[text.Storable(name)] = text.Storable(value)
		}
	}
	delivery.QueueKeep(b, it.intent, delivery.Record{Payload: it.Payload, Headers: headers, VerifiedBy: text.Octets(it.VerifiedBy, longestName), Storage: c.storageOf(it)})
}

// longestName is the size in octets of the column for [pawl.Delivery.VerifiedBy].
const longestName = 255

// Headers that a stored delivery keeps with its payload.
const (
	headerKey         = "pawl-key"
	headerSemanticKey = "pawl-semantic-key"
	headerMessageID   = "pawl-message-id"
	headerLog         = "pawl-log"
	headerOffset      = "pawl-offset" // in decimal, as JSON's numbers lose digits
	headerSentAt      = "pawl-sent-at"
	headerProducedAt  = "pawl-produced-at"
	headerOrderingKey = "pawl-ordering-key"
	headerInboxKey    = "pawl-inbox-key"
	headerStepKey     = "pawl-step-key" // of the owner of its steps, if not the inbox key
	headerAttributes  = "attributes"
)

func headersOf(it item) map[string]any {
	attributes := make(map[string]any, len(it.Attributes))
	for name, value := range it.Attributes {
		attributes[text.Storable(name)] = text.Storable(value)
	}
	h := envelopeOf(it)
	h[headerAttributes] = attributes
	return h
}

// storageOf returns how a kept delivery would be stored, for an operator who replays it.
func (c *Consumer) storageOf(it item) delivery.Replay {
	r := delivery.Replay{Queue: c.queue, Kind: storedKind, Lane: it.lane.Name, LanePolicy: it.lane.Policy, MaxAttempts: c.handler.MaxAttempts, Headers: envelopeOf(it)}
	if ownKey(it.intent.Key) && !c.keepsAttributes(it) {
		r.Headers[headerPartial] = true
	}
	if it.SemanticKey != "" {
		r.Semantic = text.Storable(c.semanticOf(it.Delivery).Key)
	}
	return r
}

// envelopeOf returns the headers, apart from attributes, that handling a delivery later needs.
func envelopeOf(it item) map[string]any {
	h := map[string]any{headerInboxKey: it.intent.Key, headerKey: text.Storable(it.Key), headerMessageID: text.Storable(it.MessageID)}
	for name, value := range map[string]string{headerOrderingKey: it.OrderingKey, headerSemanticKey: it.SemanticKey} {
		if value != "" {
			h[name] = text.Storable(value)
		}
	}
	if it.SemanticKey != "" {
		h[headerStepKey] = text.Storable(semanticName(semanticPrefix, it.SemanticKey))
	}
	if it.Log != "" {
		h[headerLog], h[headerOffset] = text.Storable(it.Log), strconv.FormatInt(it.Offset, 10)
	}
	if ownKey(it.intent.Key) {
		addIdentity(h, it)
	}
	maps.Copy(h, it.omitted)
	for name, at := range map[string]time.Time{headerSentAt: it.SentAt, headerProducedAt: it.ProducedAt} {
		if !at.IsZero() {
			h[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	return h
}
