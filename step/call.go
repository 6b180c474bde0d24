package step

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
)

// A Call is the permission to call a provider once, until its deadline.
type Call struct {
	Owner pawl.Owner
	Step  string
	// Fence of this call. It grows with each call.
	Fence int64
	// Number of the call, from 1.
	Number int
	// Again: an earlier call may have been executed.
	Again bool
	// Deadline is the last moment to send anything. The context ends then.
	Deadline time.Time

	key  string
	seen *seen
}

// Key returns the idempotency key to send. It is the same at every attempt until an operator renews
// it. By default it is a UUID, version 8, which every provider accepts. [Transport] sends it. A
// call to Key counts as proof that the key was sent: see [Keyed].
func (c Call) Key() string {
	if c.seen != nil {
		c.seen.keyed.Store(true)
	}
	return c.key
}

// keyless reports whether Key was never called, so the key cannot have been sent.
func (c Call) keyless() bool { return c.seen != nil && !c.seen.keyed.Load() }

// Reference stores the provider's name for the created object, "ch_3Mq…", cut at 255 bytes.
func (c Call) Reference(name string) {
	if c.seen != nil {
		c.seen.mu.Lock()
		defer c.seen.mu.Unlock()
		c.seen.reference = name
	}
}

// overdue reports whether the deadline has passed, by the monotonic or the wall clock. The first
// stops while a machine sleeps, the second may be set back.
func (c Call) overdue() bool {
	now := time.Now()
	return !now.Before(c.Deadline) || !now.Round(0).Before(c.Deadline.Round(0))
}

// seen is what is observed of a call while it runs.
type seen struct {
	keyed     atomic.Bool // Key was called
	mu        sync.Mutex
	reference string
	sent      bool // a request may have been sent
	exchange  *Exchange
}

// An Exchange describes a request that [Transport] sent, in pawl.step_call. It has no bodies and
// only one header, so nothing needs redaction.
type Exchange struct {
	Method    string `json:"method"`
	Host      string `json:"host"`
	Status    int    `json:"status,omitempty"`     // 0: no response
	RequestID string `json:"request_id,omitempty"` // see [Transport.RequestID]
	TookMS    int64  `json:"took_ms"`              // until the response's header
}

func (s *seen) noted() (reference string, exchange *Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reference, s.exchange
}

type callKey struct{}

// CallOf returns the call that ctx belongs to, for clients that set the key without [Transport].
func CallOf(ctx context.Context) (c Call, ok bool) {
	c, ok = ctx.Value(callKey{}).(Call)
	return c, ok
}
