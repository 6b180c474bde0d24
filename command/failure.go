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

// A Failure is a command's stored failure. Every [pawl.ErrFailedFinal] of this package wraps one.
type Failure struct {
	Code     string // the error's code, if any: a SQLSTATE or one of Pawl's
	Message  string // at most 4,000 characters
	Attempt  int    // the number of the attempt that failed
	Replayed bool   // an earlier call failed; this one did nothing
	cause    error  // the handler's error, if this call ran it
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Unwrap returns the handler's error if this call ran the handler, else nil.
func (f *Failure) Unwrap() error { return f.cause }

// FailureOf returns the stored failure in err's chain, or nil.
func FailureOf(err error) *Failure {
	var f *Failure
	errors.As(err, &f)
	return f
}

// Unknown wraps a handler's error whose effect may have happened, such as a timeout of another API.
// The command becomes unknown and does not run again until you settle it.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknownError{err}
}

type unknownError struct{ err error }

func (e *unknownError) Error() string { return fmt.Sprintf("it may have happened: %v", e.err) }
func (e *unknownError) Unwrap() error { return e.err }

// Decline returns an error for handlers: the rows are rolled back, but the command succeeds with
// this answer. Use it for a final refusal with a response of its own; [pawl.Final] stores only an
// error. In the leased form, use [Attempt.Succeed].
func Decline(answer Answer) error { return &declined{answer} }

type declined struct{ answer Answer }

func (d *declined) Error() string { return "declined, with an answer" }

// declinedIn returns err's declined answer, or nil after a panic, overrun or lost transaction.
func declinedIn(err error) *declined {
	var d *declined
	if !errors.As(err, &d) || errors.Is(err, txn.ErrLost) || txn.Abrupt(err) {
		return nil
	}
	return d
}

// RetryAfter returns when to retry after [pawl.ErrInProgress]. For other errors ok is false.
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

// endOf reads from the handler's error whether the command failed for good or is unknown.
func endOf(cause error) (final, unknown bool) {
	var u *unknownError
	// ErrEnded without MayHaveHappened: Pawl refused the statement and sent nothing.
	if errors.As(cause, &u) || errors.Is(cause, txn.ErrEnded) && pawl.MayHaveHappened(cause) {
		return false, true
	}
	return pawl.IsFinal(cause), false
}

// failed returns the error of a command that failed just now, from the status in its row.
func failed(op, status string, attempt int, cause error) error {
	switch status {
	case "failed_final":
		stored := contract.FailureOf(cause)
		return &pawl.Error{Op: op, Code: pawl.CodeFailedFinal,
			Err: &Failure{Code: stored.Code, Message: stored.Error, Attempt: attempt, cause: cause}}
	case "unknown":
		return &pawl.Error{Op: op, Code: pawl.CodeOutcomeUnknown, Err: cause}
	}
	var coded *pawl.Error
	if errors.As(cause, &coded) && strings.HasPrefix(string(coded.Code), "P4") && coded.Code != pawl.CodeOutcomeUnknown {
		// The error is about another key or lease, so its code must not count here.
		return &pawl.Error{Op: op, Err: cause}
	}
	return pawl.Wrap(op, cause)
}

// keyReused returns the error for a key that was used before with another payload.
func keyReused(op string, i pawl.Intent) error {
	return &pawl.Error{Op: op, Code: pawl.CodeKeyReused, Err: fmt.Errorf("key %s of scope %s came before with a different payload", i.Key, i.Scope),
		Hint: "use a new key for a new intent, or fix the caller that changes its payload between retries"}
}

// replayed returns the error of a command that failed earlier or is unknown.
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
