package flow

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// intent names what a delivery asks for, or says why it cannot be handled at all.
func (f *Flow) intent(d pawl.Delivery) (pawl.Intent, error) {
	if d.Key == "" {
		return pawl.Intent{}, &pawl.Error{Op: "flow.claim", Code: pawl.CodeKeyInvalid,
			Err:  fmt.Errorf("message %s carries no idempotency key", d.MessageID),
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
	print, err := f.fingerprint(d)
	if err != nil {
		return pawl.Intent{}, err
	}
	i := pawl.Intent{Scope: f.cfg.Consumer, Key: d.Key, Fingerprint: print}
	return i, i.Validate()
}

// fingerprint calls the user's function, whose panic must not kill the process: before the claim nothing counts crashes.
func (f *Flow) fingerprint(d pawl.Delivery) (print pawl.Fingerprint, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &pawl.Error{Op: "flow.fingerprint", Code: pawl.CodeFingerprintInvalid, Err: fmt.Errorf("panic: %v", cause)}
		}
	}()
	return f.cfg.Fingerprint(d)
}

// claim opens the transaction and inserts the inbox row as its first statement, in one message.
//
// claim: a crash after it costs a redelivery; the row was never visible.
func (f *Flow) claim(ctx context.Context, intent pawl.Intent) (*txn.Opened, inbox.Claim, error) {
	pending, err := inbox.Prepare(intent)
	if err != nil {
		return nil, inbox.Claim{}, err
	}
	tx, err := txn.Open(ctx, f.pool, "flow.begin", "", f.cfg.Timeout+abandonAfter, pending.Queue)
	if err != nil {
		return nil, inbox.Claim{}, err
	}
	claim, err := pending.Claim()
	if err == nil {
		err = fault.At("flow.claim.after")
	}
	if err != nil {
		txn.Rollback(ctx, tx)
		return nil, inbox.Claim{}, err
	}
	return tx, claim, nil
}

// duplicate answers a delivery that the database has seen.
func (f *Flow) duplicate(ctx context.Context, d pawl.Delivery, c inbox.Claim) pawl.Receipt {
	f.emitOf(ctx, d, pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: "flow.claim", JobID: c.JobID})
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
