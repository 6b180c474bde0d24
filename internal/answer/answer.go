// Package answer holds requests that a handler's error may carry, beyond that the attempt failed.
package answer

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
)

// An Answer is a handler's error that carries a request.
type Answer struct {
	What string
	In   time.Duration // of RetryAfter and Snooze
	Err  error
}

// Error returns the text of the failure, if there is one.
func (a *Answer) Error() string {
	if a.Err == nil {
		return fmt.Sprintf("%s %v", a.What, a.In)
	}
	return a.Err.Error()
}

// Unwrap returns the failure.
func (a *Answer) Unwrap() error { return a.Err }

// Of returns the request in err. For an ordinary or a final failure it returns the zero Answer.
func Of(err error) Answer {
	var a *Answer
	if errors.As(err, &a) && !pawl.IsFinal(err) {
		return *a
	}
	return Answer{}
}

// Within returns In, limited to the range that the SQL contract allows: zero to a year less a
// second.
func (a Answer) Within() time.Duration { return max(0, min(a.In, 365*24*time.Hour-time.Second)) }
