// Package callback calls functions of the user. A function of the user may panic, or exit its
// goroutine; the process, and the goroutine that calls it, must not end with it. [Do] and [Get] are
// the two ways to call one; docs/reference/callbacks.md lists what follows from a panic in each,
// and a test of internal/testbed/layers refuses other calls.
package callback

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Do calls fn, a function of the user, and returns its error. what names it in the error of a
// panic, such as "Config.Key"; "" names nothing. fn runs in a goroutine of its own: runtime.Goexit
// in it, as testing.T.FailNow calls, does not end the caller's.
func Do(what string, fn func() error) error {
	result := make(chan error, 1)
	go func() {
		err := error(exited(what))
		defer func() { result <- err }()
		err = Here(what, fn)
	}()
	return <-result
}

// Get is Do for functions that return a value and no error. After a panic the value is the zero
// value.
func Get[T any](what string, fn func() T) (value T, err error) {
	err = Do(what, func() error {
		value = fn()
		return nil
	})
	return value, err
}

// Here is Do in the caller's goroutine: if fn exits it, Here does not return.
func Here(what string, fn func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &Abrupt{What: what, How: fmt.Sprintf("panic: %v, at %s", cause, site()), Stack: stack(), Cause: cause}
		}
	}()
	failure := fn()
	if failure != nil {
		_ = failure.Error() // an error that panics when asked must do so in here
	}
	return failure
}

// An Abrupt is the failure of a function that did not return. It wraps nothing:
// panic(context.Canceled) is no cancellation.
type Abrupt struct {
	What  string // the function, as the documentation names it
	How   string // the panic and its place, or that the goroutine exited
	Stack string // of a panic
	Cause any    // what was given to panic
}

// Error names the function, the panic and the first frame of the user's code. The stack would not
// fit into an error history; see [StackOf].
func (a *Abrupt) Error() string {
	if a.What == "" {
		return a.How
	}
	return a.What + ": " + a.How
}

// Panicked reports whether err is the failure of a function that did not return.
func Panicked(err error) bool { return errors.As(err, new(*Abrupt)) }

// StackOf returns the stack of the panic that err is the failure of; "" if it is none.
func StackOf(err error) string {
	var a *Abrupt
	if errors.As(err, &a) {
		return a.Stack
	}
	return ""
}

// CauseOf returns what was given to the panic that err is the failure of; nil if it is none.
// net/http compares it with http.ErrAbortHandler.
func CauseOf(err error) any {
	var a *Abrupt
	if errors.As(err, &a) {
		return a.Cause
	}
	return nil
}

func exited(what string) *Abrupt {
	return &Abrupt{What: what, How: "the function exited its goroutine"}
}

// maxStack bounds a stack, in octets: it goes into one line of a log.
const maxStack = 16 << 10

func stack() string {
	text := debug.Stack()
	return string(text[:min(len(text), maxStack)])
}

// site names the first frame of user code under the panic.
func site() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "runtime.") {
			return fmt.Sprintf("%s (%s:%d)", frame.Function, frame.File, frame.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}
