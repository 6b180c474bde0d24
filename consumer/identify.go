package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/text"
)

type item struct {
	pawl.Delivery
	sent     string // the key from the source; the configured one may differ
	intent   pawl.Intent
	lane     delivery.Lane
	sequence *delivery.Sequence // nil: no sequence gate
	resource string             // must not be used by two handlers at once; "" for none
	preset   *disposition       // used without calling the handler; nil: call it
	started  bool               // the source has confirmed that it is still held
	lost     bool               // its batch was lost with its connection, and the loss is counted
	omitted  map[string]any     // headers that say what was not kept; nil: everything was
}

// identify finds the intent of a delivery, or returns why it cannot be handled. It calls the user's
// functions. Their panics must not kill the process, because before the claim no crash is counted.
func (c *Consumer) identify(d pawl.Delivery) (it item, err error) {
	it.Delivery, it.sent = d, d.Key
	it.SentAt, it.ProducedAt = plausibleTime(d.SentAt), plausibleTime(d.ProducedAt)
	if d.Fault != nil {
		return it, unreadable(d.Fault)
	}
	if err = callback.Do("", func() error { return c.callIdentifiers(&it) }); callback.Panicked(err) {
		err = unreadable(err)
	}
	return it, err
}

// plausibleTime returns at, or zero if it cannot be a real time. Some producers and brokers write 0
// or -1 for an unknown time. That would be 1970, older than anything remembered. A time after the
// year 9999, the last of RFC 3339, is milliseconds read as seconds.
func plausibleTime(at time.Time) time.Time {
	if seconds := at.Unix(); seconds <= 0 || seconds >= endOf9999 {
		return time.Time{}
	}
	return at
}

// endOf9999 is the start of the year 10000, in seconds since 1970.
const endOf9999 = 253402300800

// unreadable returns the error of a message on which a user function panicked: a dead letter.
func unreadable(fault error) error {
	return &pawl.Error{Op: "consumer.claim", Code: pawl.CodeFingerprintInvalid, Err: fault, Hint: "mend the function; the dead letter has the payload"}
}

func (c *Consumer) callIdentifiers(it *item) (err error) {
	if err := tooLarge(it.Delivery); err != nil {
		return err
	}
	it.Key = c.cfg.Key(it.Delivery)
	if it.intent, err = c.intent(it.Delivery); err != nil {
		return err
	}
	if it.SemanticKey != "" {
		if err := c.semanticOf(it.Delivery).Validate(); err != nil {
			return err
		}
	}
	if c.handler.exclusive != nil {
		it.resource = c.handler.exclusive(it.Delivery)
	}
	if it.sequence, err = c.sequenceOf(it.Delivery); err != nil {
		return err
	}
	if it.OrderingKey != "" {
		it.lane, err = c.laneOf(it.OrderingKey)
	}
	return err
}

// laneOf returns the lane of an ordering key: the key itself, or its hash if it is too long.
func (c *Consumer) laneOf(orderingKey string) (delivery.Lane, error) {
	if strings.ContainsRune(orderingKey, 0) || !utf8.ValidString(orderingKey) {
		return delivery.Lane{}, &pawl.Error{Op: "consumer.claim", Code: pawl.CodeKeyInvalid, Err: fmt.Errorf("the ordering key %q is not text", orderingKey)}
	}
	if len(orderingKey) > pawl.MaxScope {
		orderingKey = pawl.Key(orderingKey)
	}
	return delivery.Lane{Queue: c.queue, Name: orderingKey, Policy: string(c.handler.LanePolicy)}, nil
}

func (c *Consumer) intent(d pawl.Delivery) (pawl.Intent, error) {
	if d.Key == "" {
		err := fmt.Errorf("message %s carries no idempotency key", d.MessageID)
		if d.KeyFault != "" {
			err = fmt.Errorf("%w: %s", err, d.KeyFault)
		}
		return pawl.Intent{}, &pawl.Error{Op: "consumer.claim", Code: pawl.CodeKeyInvalid, Err: err,
			Hint: "let the producer set one, or choose another key in the source's configuration"}
	}
	if ownKey(d.Key) {
		return pawl.Intent{}, &pawl.Error{Op: "consumer.claim", Code: pawl.CodeKeyInvalid,
			Err: fmt.Errorf("key %q begins with the reserved %q", d.Key, reservedPrefix)}
	}
	if len(d.Payload) > c.handler.MaxPayload {
		return pawl.Intent{}, &pawl.Error{Op: "consumer.claim", Code: pawl.CodeArgumentInvalid,
			Err:  fmt.Errorf("the payload has %d octets, the limit is %d", len(d.Payload), c.handler.MaxPayload),
			Hint: "raise MaxPayload, or let the producer send a reference"}
	}
	print, err := c.cfg.Fingerprint(d)
	if err != nil {
		return pawl.Intent{}, err
	}
	i := pawl.Intent{Scope: c.cfg.Name, Key: d.Key, Fingerprint: print}
	return i, i.Validate()
}

// presetFor returns the disposition of a delivery that is stored without calling the handler,
// because it is suspected or the mode is StoreFirst. Nil means: call the handler.
func (c *Consumer) presetFor(ctx context.Context, d pawl.Delivery) (*disposition, error) {
	suspected, err := c.suspected(ctx, d)
	switch {
	case err != nil:
		return nil, err
	case suspected:
		disp := c.untriedDisposition(pawl.EventSuspect)
		disp.store.Suspect = true
		return disp, nil
	case c.handler.mode == StoreFirst:
		return c.untriedDisposition(pawl.EventStored), nil
	}
	return nil, nil
}

// asDeadLetter returns the item for a delivery that cannot be claimed under its key: a dead letter
// with its payload and the reason. Its inbox key is derived from this message, so a redelivery is a
// duplicate and not a second dead letter. If an operator retries it, [Consumer.deliverAgain]
// identifies it again. If the delivery is too large, [keepable] cuts it.
func (c *Consumer) asDeadLetter(it item, why error) item {
	d := it.Delivery
	kind := pawl.EventInvalid
	if errors.As(why, new(mismatch)) {
		kind = pawl.EventMismatch
	}
	print := printOf(d)
	what := pawl.FingerprintOf([]byte(d.Key), print[:])
	if d.Key == "" {
		what = pawl.FingerprintOf([]byte(d.MessageID), print[:])
	}
	disp := deadDisposition(kind, why)
	if kind == pawl.EventMismatch {
		disp.store.Code = delivery.CodeMismatch
	}
	sent := it.sent
	d, omitted := keepable(d)
	if _, cut := omitted[headerTextOctets]; cut {
		sent = text.Octets(sent, longestText)
	}
	return item{Delivery: d, sent: sent, preset: disp, omitted: omitted,
		intent: pawl.Intent{Scope: c.cfg.Name, Key: reservedPrefix + string(kind) + "/" + what.String(), Fingerprint: print}}
}

// asStarted returns the item marked as still held by the source.
func (it item) asStarted() item {
	it.started = true
	return it
}

// inFlight is the set of keys that this process is working on. A duplicate then needs no connection
// to wait for the database's answer. The database still decides.
type inFlight struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

func (s *inFlight) enter(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.keys[key]; there {
		return false
	}
	if s.keys == nil {
		s.keys = map[string]struct{}{}
	}
	s.keys[key] = struct{}{}
	return true
}

func (s *inFlight) leave(key string) {
	s.mu.Lock()
	delete(s.keys, key)
	s.mu.Unlock()
}
