package step

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/text"
)

// A Refusal is the final no of a provider: a card that is declined. It is stored, and the same at every later attempt. It counts as
// [pawl.Final]; a handler that can go on without the step finds it with errors.As.
type Refusal struct {
	Code    string // the provider's, cut at 255 octets; may be empty
	Message string // cut at 4,000 characters

	byStatus bool // read from a status alone, which says nothing of earlier calls
}

func (r *Refusal) Error() string {
	if r.Code == "" {
		return "refused: " + r.Message
	}
	return fmt.Sprintf("refused: %s: %s", r.Code, r.Message)
}

// Refused is what a call returns when the provider's answer is final: it took no effect and never will. With [Keyed] it is the
// answer to every call with the key: an earlier one of which nobody knew is settled with it. So do not return it for what is only
// wrong with this very request, such as "this key was used before", or a password that has expired.
func Refused(code, message string) error { return &Refusal{Code: code, Message: message} }

// NotSent is what a call returns when it certainly took no effect and may be made again: nothing was sent, or the provider says that
// it did nothing (too many requests). [Transport] finds out by itself when there was no connection to send on; without it every
// error of a client is ambiguous, unless it is wrapped in NotSent.
func NotSent(err error) error {
	if err == nil {
		err = errors.New("nothing was sent")
	}
	return &notSent{err}
}

type notSent struct{ err error }

func (n *notSent) Error() string { return fmt.Sprintf("not sent: %v", n.err) }
func (n *notSent) Unwrap() error { return n.err }

// outcomeOf reads how a call ended. Whatever is not certain is ambiguous: a request whose answer was lost looks like one that
// was never answered.
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

// HTTPStatus makes the error that a provider's HTTP status means, with its body's message; nil for 2xx.
//
//	401, 403, 407, 409, 425, 429   not sent: it did nothing; call again
//	408, 5xx, 1xx, 3xx             ambiguous: it may have acted
//	the rest of 4xx                refused; ambiguous if an earlier call may have been executed
//
// It is a rule of thumb; where a provider documents more, return [Refused] or [NotSent] yourself.
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

// unknown is the error of a step that waits for a verdict.
func unknown(step string, cause error) error {
	err := fmt.Errorf("step %s", step)
	if cause != nil {
		err = fmt.Errorf("step %s: %w", step, cause)
	}
	return &pawl.Error{Op: "step.call", Code: pawl.CodeOutcomeUnknown, Err: err,
		Hint: "find out whether it was executed, then settle it: pawl steps settle, or step_settle"}
}

// overdue is the error of a call whose time was over before it was made.
func overdue(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return NotSent(err)
	}
	return NotSent(errors.New("the time to send was over"))
}
