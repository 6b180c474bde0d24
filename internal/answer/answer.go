// Package answer holds what a handler's error says beyond that the attempt failed.
package answer

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
)

// What a handler may ask for; "" is an ordinary failure.
const (
	RetryAfter = "retry after"
	Snooze     = "snooze"
	Cancel     = "cancel"
)

// An Answer is an error of a handler that asks for something.
type Answer struct {
	What string
	In   time.Duration // of RetryAfter and Snooze
	Err  error
}

// Error is that of the failure, if there is one.
func (a *Answer) Error() string {
	if a.Err == nil {
		return fmt.Sprintf("%s %v", a.What, a.In)
	}
	return a.Err.Error()
}

// Unwrap returns the failure.
func (a *Answer) Unwrap() error { return a.Err }

// Of returns what err asks for; the zero Answer for an ordinary failure, and for a final one.
func Of(err error) Answer {
	var a *Answer
	if errors.As(err, &a) && !pawl.IsFinal(err) {
		return *a
	}
	return Answer{}
}

// Within is In, between zero and a year less a second, which the contract allows.
func (a Answer) Within() time.Duration { return max(0, min(a.In, 365*24*time.Hour-time.Second)) }
