package step

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
)

// A Call is the permission to call a provider once, now.
type Call struct {
	Owner pawl.Owner
	Step  string
	// Fence of this call. It grows from call to call.
	Fence int64
	// Number of the call, from 1.
	Number int
	// Again: an earlier call may have been executed.
	Again bool
	// Deadline is the last moment at which anything may be sent. The context ends then.
	Deadline time.Time

	key  string
	seen *seen
}

// Key is the idempotency key to send, the same at every attempt until an operator asks for a new one. Unless the step gave one it is a UUID,
// version 8, which every provider takes. [Transport] sends it by itself. That it is asked for is taken as proof that it was sent: see [Keyed].
func (c Call) Key() string {
	if c.seen != nil {
		c.seen.keyed.Store(true)
	}
	return c.key
}

// keyless reports whether nothing has asked for the key, so that it cannot have been sent.
func (c Call) keyless() bool { return c.seen != nil && !c.seen.keyed.Load() }

// Reference notes the provider's name for what the call made, "ch_3Mq…", for people and for those who settle. What is over 255
// octets is cut.
func (c Call) Reference(name string) {
	if c.seen != nil {
		c.seen.mu.Lock()
		defer c.seen.mu.Unlock()
		c.seen.reference = name
	}
}

// overdue reports whether the time to send is over, by the monotonic clock or by the other one: the first stands still while a
// machine sleeps, the second may be set back.
func (c Call) overdue() bool {
	now := time.Now()
	return !now.Before(c.Deadline) || !now.Round(0).Before(c.Deadline.Round(0))
}

// seen is what is noted of a call while it lasts.
type seen struct {
	keyed     atomic.Bool // the key was asked for
	mu        sync.Mutex
	reference string
	sent      bool // a request may have left
	exchange  *Exchange
}

// An Exchange is what is kept of a request that [Transport] sent, in pawl.step_call. No bodies, no headers but one: nothing that
// would have to be redacted.
type Exchange struct {
	Method    string `json:"method"`
	Host      string `json:"host"`
	Status    int    `json:"status,omitempty"`     // 0: no answer
	RequestID string `json:"request_id,omitempty"` // the provider's name for the request: see [Transport.RequestID]
	TookMS    int64  `json:"took_ms"`              // until the answer's header
}

func (s *seen) noted() (reference string, exchange *Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reference, s.exchange
}

type callKey struct{}

// CallOf returns the call that ctx belongs to, for clients that set the key themselves, as [Transport] does.
func CallOf(ctx context.Context) (c Call, ok bool) {
	c, ok = ctx.Value(callKey{}).(Call)
	return c, ok
}
