// Package directive holds requests that a handler's error may carry, beyond that the attempt
// failed.
package directive

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
)

// Requests of a handler; "" is an ordinary failure.
const (
	RetryAfter = "retry after"
	Snooze     = "snooze"
	Cancel     = "cancel"
	Wait       = "wait"
)

// A Directive is a handler's error that carries a request.
type Directive struct {
	What string
	In   time.Duration // of RetryAfter, Snooze and Wait
	// Limit bounds all waits of a Wait together.
	Limit time.Duration
	Err   error
}

// Error returns the text of the failure, if there is one.
func (d *Directive) Error() string {
	if d.Err == nil {
		return fmt.Sprintf("%s %v", d.What, d.In)
	}
	return d.Err.Error()
}

// Unwrap returns the failure.
func (d *Directive) Unwrap() error { return d.Err }

// Of returns the request in err. For an ordinary or a final failure it returns the zero Directive.
func Of(err error) Directive {
	var d *Directive
	if errors.As(err, &d) && !pawl.IsFinal(err) {
		return *d
	}
	return Directive{}
}

// WaitLimit returns the Limit of a Wait, at least a millisecond and less than a year, and 0 for
// other requests.
func (d Directive) WaitLimit() time.Duration {
	if d.What != Wait {
		return 0
	}
	return max(time.Millisecond, min(d.Limit, 365*24*time.Hour-time.Second))
}

// Uncharged reports whether the attempt only came too early.
func (d Directive) Uncharged() bool { return d.What == Snooze || d.What == Wait }

// Within returns In, limited to the range that the SQL contract allows: zero to a year less a
// second.
func (d Directive) Within() time.Duration { return max(0, min(d.In, 365*24*time.Hour-time.Second)) }
