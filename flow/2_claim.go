package flow

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/receipt"
	"github.com/pawl-go/pawl/internal/txn"
)

// An item is a delivery whose intent is known.
type item struct {
	pawl.Delivery
	intent   pawl.Intent
	lane     inbox.Lane
	turn     *inbox.Turn // at its gate; nil for none
	resource string      // that no other handler may work on meanwhile; "" for none
}

// identify names what a delivery asks for, or says why it cannot be handled at all. It calls the user's functions, whose panic
// must not kill the process: before the claim nothing counts crashes.
func (f *Flow) identify(d pawl.Delivery) (it item, err error) {
	it.Delivery = d
	defer func() {
		if cause := recover(); cause != nil {
			err = &pawl.Error{Op: "flow.claim", Code: pawl.CodeFingerprintInvalid, Err: fmt.Errorf("panic: %v", cause)}
		}
	}()
	it.Key = f.cfg.Key(d)
	if it.intent, err = f.intent(it.Delivery); err != nil {
		return it, err
	}
	if it.SemanticKey != "" {
		if err := f.semanticOf(it.Delivery).Validate(); err != nil {
			return it, err
		}
	}
	if f.cfg.Exclusive != nil {
		it.resource = f.cfg.Exclusive(it.Delivery)
	}
	if it.turn, err = f.cfg.turn(it.Delivery); err != nil {
		return it, err
	}
	if d.OrderingKey != "" {
		it.lane, err = f.laneOf(d.OrderingKey)
	}
	return it, err
}

// laneOf is the lane of an ordering key: the key itself, or its hash if it is too long for a name.
func (f *Flow) laneOf(orderingKey string) (inbox.Lane, error) {
	if strings.ContainsRune(orderingKey, 0) || !utf8.ValidString(orderingKey) {
		return inbox.Lane{}, &pawl.Error{Op: "flow.claim", Code: pawl.CodeKeyInvalid, Err: fmt.Errorf("the ordering key %q is not text", orderingKey)}
	}
	if len(orderingKey) > pawl.MaxScope {
		orderingKey = pawl.Key(orderingKey)
	}
	return inbox.Lane{Queue: f.queue, Name: orderingKey, Policy: string(f.cfg.LanePolicy)}, nil
}

func (f *Flow) intent(d pawl.Delivery) (pawl.Intent, error) {
	if d.Key == "" {
		err := fmt.Errorf("message %s carries no idempotency key", d.MessageID)
		if d.KeyFault != "" {
			err = fmt.Errorf("%w: %s", err, d.KeyFault)
		}
		return pawl.Intent{}, &pawl.Error{Op: "flow.claim", Code: pawl.CodeKeyInvalid, Err: err,
			Hint: "let the producer set one, or choose another key in the source's configuration"}
	}
	if strings.HasPrefix(d.Key, reservedPrefix) {
		return pawl.Intent{}, &pawl.Error{Op: "flow.claim", Code: pawl.CodeKeyInvalid,
			Err: fmt.Errorf("key %q begins with the reserved %q", d.Key, reservedPrefix)}
	}
	if len(d.Body) > f.cfg.MaxBody {
		return pawl.Intent{}, &pawl.Error{Op: "flow.claim", Code: pawl.CodeArgumentInvalid,
			Err:  fmt.Errorf("the body has %d octets, the limit is %d", len(d.Body), f.cfg.MaxBody),
			Hint: "raise MaxBody, or let the producer send a reference"}
	}
	print, err := f.cfg.Fingerprint(d)
	if err != nil {
		return pawl.Intent{}, err
	}
	i := pawl.Intent{Scope: f.cfg.Consumer, Key: d.Key, Fingerprint: print}
	return i, i.Validate()
}

// claim opens the transaction and inserts the inbox row as its first statement, in one message. With an ordering key the lane
// is locked before: whoever had a delivery of it in hand is done then, or has landed it.
//
// claim: a crash after it costs a redelivery; the row was never visible.
func (f *Flow) claim(ctx context.Context, it item) (*txn.Opened, inbox.Claim, error) {
	pending, err := inbox.Prepare(it.intent, it.lane)
	if err != nil {
		return nil, inbox.Claim{}, err
	}
	tx, err := f.open(ctx, pending.Queue)
	if err != nil {
		return nil, inbox.Claim{}, err
	}
	claim, err := pending.Claim()
	if err != nil {
		txn.Rollback(ctx, tx)
		return nil, inbox.Claim{}, err
	}
	return tx, claim, nil
}

// open begins the transaction that every effect shares with its claim.
func (f *Flow) open(ctx context.Context, claim func(*pgx.Batch)) (*txn.Opened, error) {
	tx, err := txn.Open(ctx, f.pool, "flow.begin", "", f.cfg.Timeout+abandonAfter, claim)
	if err != nil {
		return nil, err
	}
	if err := fault.At("flow.claim.after"); err != nil {
		txn.Rollback(ctx, tx)
		return nil, err
	}
	return tx, nil
}

// duplicate answers a delivery that the database has seen. While the server replicates synchronously that is not enough: what was
// read must be replicated too, which [Flow.proveAll] finds out.
func (f *Flow) duplicate(ctx context.Context, d pawl.Delivery, op string, c inbox.Claim) pawl.Receipt {
	f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: op, JobID: c.JobID})
	if c.Unproved {
		return receipt.Read(d.Handle)
	}
	return answered(d)
}

// conflict gives back a delivery whose intent is being processed right now, here or elsewhere. It is neither
// acknowledged nor dead-lettered (trap T12): whoever holds it may yet fail.
func (f *Flow) conflict(ctx context.Context, d pawl.Delivery, err error) (pawl.Receipt, time.Duration) {
	f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventConflict, Op: "flow.claim", Err: err})
	return pawl.Receipt{}, jittered(2 * time.Second)
}

// inFlight is the set of keys this process is working on. It saves a duplicate the wait for the database's answer and
// the connection it would hold meanwhile; the database decides all the same.
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
