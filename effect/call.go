package effect

import (
	"context"
	"time"
)

// A Call is the permission to call a provider once, now.
type Call struct {
	Step string
	// Key is the idempotency key to send, the same at every attempt: 1 to 255 octets that fit an HTTP header.
	Key string
	// Fence of this call. It grows from call to call.
	Fence int64
	// Number of the call, from 1.
	Number int
	// Again: an earlier call may have landed.
	Again bool
	// Deadline is the last moment at which anything may be sent. The context ends then. By the monotonic clock.
	Deadline time.Time

	reference *string
}

// Reference notes the provider's name for what the call made, "ch_3Mq…", for people and for those who settle: at most 255 octets.
func (c Call) Reference(name string) {
	if c.reference != nil {
		*c.reference = name
	}
}

type callKey struct{}

// CallOf returns the call that ctx belongs to, for clients that set the key themselves, as [Transport] does.
func CallOf(ctx context.Context) (c Call, ok bool) {
	c, ok = ctx.Value(callKey{}).(Call)
	return c, ok
}
