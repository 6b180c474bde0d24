package adapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
)

// Wrap gives an error of a broker's client its operation and, if diagnose knows them, a short text
// in place of the client's and the next step. Pawl's own errors stay as they are.
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

// Short gives an error a text of one line, and keeps it for errors.As.
func Short(text string, err error) error { return &diagnosedError{text, err} }

// A diagnosedError says in one line what the client says in several, and keeps the client's error for
// errors.As.
type diagnosedError struct {
	text string
	err  error
}

func (c *diagnosedError) Error() string { return c.text }
func (c *diagnosedError) Unwrap() error { return c.err }

// BadArgument is the error for a setting that is out of its bounds.
func BadArgument(op, format string, args ...any) error {
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf(format, args...)}
}
