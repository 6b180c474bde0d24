package command

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/txn"
)

// A Failure is a command's stored failure. It is in the chain of every [pawl.ErrFailedFinal] of this package.
type Failure struct {
	Code     string // of the error, if it had one: a SQLSTATE or one of Pawl's
	Message  string // at most 4,000 characters
	Attempt  int    // which attempt failed
	Replayed bool   // it failed earlier; this call did nothing
	cause    error  // of this very call
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Unwrap returns the handler's error, if this call made it.
func (f *Failure) Unwrap() error { return f.cause }

// FailureOf returns the stored failure in err's chain, or nil.
func FailureOf(err error) *Failure {
	var f *Failure
	errors.As(err, &f)
	return f
}

// Unknown wraps a handler's error to say that its effect may have happened, as after a timeout of somebody else's API: the
// command becomes unknown and is not run again until somebody has found out.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknownError{err}
}

type unknownError struct{ err error }

func (e *unknownError) Error() string { return fmt.Sprintf("it may have happened: %v", e.err) }
func (e *unknownError) Unwrap() error { return e.err }

// Decline is an error for handlers: what they wrote is rolled back, and the command ends with this answer all the same. It is for
// a refusal that is final and has a body of its own, where [pawl.Final] would leave only an error. In the leased form, which has
// nothing to roll back, use [Attempt.Succeed].
func Decline(answer Answer) error { return &declined{answer} }

type declined struct{ answer Answer }

func (d *declined) Error() string { return "declined, with an answer" }

// declinedIn returns the answer in err's chain, unless more went wrong than that.
func declinedIn(err error) *declined {
	var d *declined
	if !errors.As(err, &d) || errors.Is(err, txn.ErrLost) || txn.Abrupt(err) {
		return nil
	}
	return d
}

// RetryAfter returns when to ask again for what is in progress; ok is false for other errors.
func RetryAfter(err error) (after time.Duration, ok bool) {
	var p *inProgress
	if !errors.As(err, &p) {
		return 0, false
	}
	return p.after, true
}

type inProgress struct{ after time.Duration }

func (p *inProgress) Error() string { return fmt.Sprintf("retry after %v", p.after) }

func errInProgress(op string, after time.Duration) error {
	if after <= 0 {
		after = time.Second
	}
	return &pawl.Error{Op: op, Code: pawl.CodeInProgress, Err: &inProgress{after}}
}

// endOf reads what the handler's error says of the command.
func endOf(cause error) (final, unknown bool) {
	var u *unknownError
	if errors.As(cause, &u) || errors.Is(cause, txn.ErrEnded) && pawl.MayHaveHappened(cause) { // else nothing was sent
		return false, true
	}
	return pawl.IsFinal(cause), false
}

// failed makes the error of a command that failed just now from what its row holds.
func failed(op, status string, attempt int, cause error) error {
	switch status {
	case "failed_final":
		stored := contract.FailureOf(cause)
		return &pawl.Error{Op: op, Code: pawl.CodeFailedFinal,
			Err: &Failure{Code: stored.Code, Message: stored.Error, Attempt: attempt, cause: cause}}
	case "unknown":
		return &pawl.Error{Op: op, Code: pawl.CodeOutcomeUnknown, Err: cause}
	}
	var known *pawl.Error
	if errors.As(cause, &known) && strings.HasPrefix(string(known.Code), "P4") && known.Code != pawl.CodeOutcomeUnknown {
		return &pawl.Error{Op: op, Err: cause} // what the handler was told of another key or lease is not said of this one
	}
	return pawl.Wrap(op, cause)
}

// keyReused makes the error of a key that came before with another payload.
func keyReused(op string, i pawl.Intent) error {
	return &pawl.Error{Op: op, Code: pawl.CodeKeyReused, Err: fmt.Errorf("key %s of scope %s came before with a different payload", i.Key, i.Scope),
		Hint: "use a new key for a new intent, or fix the caller that changes its payload between retries"}
}

// replayed makes the error of a command that failed earlier, or of which nobody knows.
func replayed(op string, r contract.CommandRow) error {
	if r.Outcome == "final_failure" {
		return &pawl.Error{Op: op, Code: pawl.CodeFailedFinal,
			Err: &Failure{Code: r.FailureCode, Message: r.FailureMessage, Attempt: r.Attempts, Replayed: true}}
	}
	e := &pawl.Error{Op: op, Code: pawl.CodeOutcomeUnknown}
	if r.FailureMessage != "" {
		e.Err = errors.New(r.FailureMessage)
	}
	return e
}
