// Package callback calls user functions. A user function may panic or exit its goroutine. Neither
// may end the process or the calling goroutine. Call user functions only with [Do] and [Get]; a
// test of internal/testbed/layers refuses other calls. docs/reference/callbacks.md lists the
// consequence of a panic in each function.
package callback

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Do calls fn, a user function, and returns its error. what names it in the error of a panic, such
// as "Config.Key"; it may be empty. fn runs in a goroutine of its own, so runtime.Goexit in it, as
// by testing.T.FailNow, does not end the caller's.
func Do(what string, fn func() error) error {
	result := make(chan error, 1)
	go func() {
		err := error(exited(what))
		defer func() { result <- err }()
		err = Here(what, fn)
	}()
	return <-result
}

// Get is Do for functions that return a value and no error. After a panic it returns the zero
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
		_ = failure.Error() // an Error method that panics must do so here
	}
	return failure
}

// An Abrupt is the failure of a function that did not return. It wraps no error, so
// panic(context.Canceled) is no cancellation.
type Abrupt struct {
	What  string // the function, as named in the documentation
	How   string // the panic and its place, or that the goroutine exited
	Stack string // of a panic
	Cause any    // the value given to panic
}

// Error names the function, the panic and the first frame of user code. The stack would not fit
// into an error history; see [StackOf].
func (a *Abrupt) Error() string {
	if a.What == "" {
		return a.How
	}
	return a.What + ": " + a.How
}

// Panicked reports whether err is the failure of a function that did not return.
func Panicked(err error) bool { return errors.As(err, new(*Abrupt)) }

// StackOf returns the stack of the panic in err, or "" if err is no panic.
func StackOf(err error) string {
	var a *Abrupt
	if errors.As(err, &a) {
		return a.Stack
	}
	return ""
}

// CauseOf returns the value of the panic in err, or nil if err is no panic. net/http compares it
// with http.ErrAbortHandler.
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

// maxStack bounds a stack, in bytes, because it is logged in one line.
const maxStack = 16 << 10

func stack() string {
	text := debug.Stack()
	return string(text[:min(len(text), maxStack)])
}

// site returns the first frame of user code below the panic.
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
