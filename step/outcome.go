package step

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/text"
)

// A Refusal is a provider's final refusal, such as a declined card, returned at every later
// attempt. It counts as [pawl.Final]. A handler that can go on without the step finds it with
// errors.As.
type Refusal struct {
	Code    string // the provider's, cut at 255 bytes; may be empty
	Message string // cut at 4,000 characters

	byStatus bool // from a status alone, which says nothing about earlier calls
}

func (r *Refusal) Error() string {
	if r.Code == "" {
		return "refused: " + r.Message
	}
	return fmt.Sprintf("refused: %s: %s", r.Code, r.Message)
}

// Refused returns the error of a call that had no effect and never will. With [Keyed] it answers
// every call with the key, so it also settles earlier calls with unknown outcome. Do not return it
// for an error of this request alone: "this key was used before", or an expired password.
func Refused(code, message string) error { return &Refusal{Code: code, Message: message} }

// NotSent wraps the error of a call that certainly had no effect and may be repeated: nothing was
// sent, or the provider says that it did nothing (too many requests). [Transport] recognizes a
// missing connection. Without it every client error is ambiguous unless you wrap it.
func NotSent(err error) error {
	if err == nil {
		err = errors.New("nothing was sent")
	}
	return &notSent{err}
}

type notSent struct{ err error }

func (n *notSent) Error() string { return fmt.Sprintf("not sent: %v", n.err) }
func (n *notSent) Unwrap() error { return n.err }

// outcomeOf returns the outcome of a call. An error that proves nothing is ambiguous: a request
// whose reply was lost looks like one that was never answered.
func outcomeOf(c Call, err error) (outcome string, f contract.Failure) {
	var refusal *Refusal
	switch {
	case err == nil:
		return "executed", f
	case errors.As(err, &refusal) && !(refusal.byStatus && c.Again):
		return "refused", contract.Failure{Error: contract.FailureOf(errors.New(refusal.Message)).Error, Code: text.Octets(refusal.Code, 255)}
	case errors.As(err, new(*notSent)):
		return "not_sent", contract.FailureOf(err)
	}
	return "ambiguous", contract.FailureOf(err)
}

// HTTPStatus returns the error for a provider's HTTP status, or nil for 2xx.
//
//	401, 403, 407, 409, 425, 429   not sent: the provider did nothing; call again
//	408, 5xx, 1xx, 3xx             ambiguous: it may have acted
//	the rest of 4xx                refused; ambiguous if an earlier call may have been executed
//
// It is a rule of thumb. If a provider documents more, return [Refused] or [NotSent] yourself.
func HTTPStatus(status int, message string) error {
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == 401 || status == 403 || status == 407 || status == 409 || status == 425 || status == 429:
		return NotSent(fmt.Errorf("HTTP status %d: %s", status, message))
	case status >= 400 && status < 500 && status != 408:
		return &Refusal{Code: fmt.Sprintf("http_%d", status), Message: message, byStatus: true}
	}
	return fmt.Errorf("HTTP status %d: %s", status, message)
}

// unknown returns the error of a step that waits to be settled.
func unknown(step string, cause error) error {
	err := fmt.Errorf("step %s", step)
	if cause != nil {
		err = fmt.Errorf("step %s: %w", step, cause)
	}
	return &pawl.Error{Op: "step.call", Code: pawl.CodeOutcomeUnknown, Err: err,
		Hint: "find out whether it was executed, then settle it: pawl steps settle, or step_settle"}
}

// overdue returns the error of a call whose deadline passed before it was made.
func overdue(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return NotSent(err)
	}
	return NotSent(errors.New("the deadline to send had passed"))
}
