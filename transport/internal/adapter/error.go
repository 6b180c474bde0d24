package adapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
)

// Wrap adds the operation to an error of a broker's client. If diagnose knows the error, Wrap also
// adds the next step, and replaces the text with a short one. Pawl's own errors are returned
// unchanged.
func Wrap(op string, err error, diagnose func(err error) (short, hint string)) error {
	if err == nil || errors.As(err, new(*pawl.Error)) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return &pawl.Error{Op: op, Err: err}
	}
	short, hint := diagnose(err)
	if short != "" {
		err = Short(short, err)
	}
	return &pawl.Error{Op: op, Err: err, Hint: hint}
}

// Short replaces the text of an error with one line. errors.As still finds the error.
func Short(text string, err error) error { return &diagnosedError{text, err} }

// A diagnosedError has a one-line text for a client's error of several lines, and wraps that error
// for errors.As.
type diagnosedError struct {
	text string
	err  error
}

func (c *diagnosedError) Error() string { return c.text }
func (c *diagnosedError) Unwrap() error { return c.err }

// BadArgument returns the error for a setting that is out of bounds.
func BadArgument(op, format string, args ...any) error {
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf(format, args...)}
}
