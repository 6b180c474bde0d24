package job

import (
	"context"
	"sync"
	"time"
)

// A handling is the context of one attempt. It is a few words until its Done is asked for: then it becomes a context of the standard
// library, with its timer. What ends it before that is the session: see roll.
type handling struct {
	base  context.Context // of the session
	limit time.Time       // zero: none

	mu    sync.Mutex
	real  context.Context // once Done was asked for
	stop  context.CancelCauseFunc
	err   error
	cause error
}

func (c *handling) Deadline() (limit time.Time, ok bool) { return c.limit, !c.limit.IsZero() }

func (c *handling) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Done()
}

func (c *handling) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real != nil {
		return c.real.Err()
	}
	return c.err
}

// Value also answers [context.Cause], which asks it for a key of its own: so once it has ended it is made.
func (c *handling) Value(key any) any {
	c.mu.Lock()
	from := c.base
	if c.real != nil || c.err != nil {
		from = c.made()
	}
	c.mu.Unlock()
	return from.Value(key)
}

// made returns the context of the standard library. It is called with the lock held.
func (c *handling) made() context.Context {
	if c.real != nil {
		return c.real
	}
	real, cancel := context.WithCancelCause(c.base)
	if c.err == context.Canceled {
		cancel(c.cause)
	}
	c.real, c.stop = real, cancel
	if !c.limit.IsZero() {
		var release context.CancelFunc
		c.real, release = context.WithDeadline(real, c.limit)
		c.stop = func(cause error) { cancel(cause); release() }
	}
	return c.real
}

// expire ends it as its limit does.
func (c *handling) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.real == nil {
		c.err = context.DeadlineExceeded
	}
}

// cancel ends it.
func (c *handling) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err, c.cause = context.Canceled, cause
	}
	if c.real != nil {
		c.stop(cause)
	}
}

// recalled reports whether it ended because an operator cancels its job.
func (c *handling) recalled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause == errRecalled
}
