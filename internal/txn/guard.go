package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// ErrLost means that the whole transaction is gone, not only the work since the savepoint.
var ErrLost = errors.New("the transaction was lost")

// ErrEnded means that user code ended the transaction that it was lent, or tried to. If the error
// also is [pawl.ErrCommitUnknown], user code ended it through the connection, and its writes may be
// durable. Otherwise Pawl refused the statement and sent nothing.
var ErrEnded = errors.New("the handler ended the transaction it was lent; it must not commit or roll back")

// endedByText returns the error for a transaction that user code ended through the connection. The
// claim may have become durable together with the effect, so the caller must claim again to find
// out.
func endedByText(cause error) error {
	return &pawl.Error{Op: "handler", Code: pawl.CodeCommitUnknown, Err: errors.Join(ErrLost, ErrEnded, cause)}
}

// An overrunError is the failure of a handler that ran longer than its limit. The attempt is
// charged, even if the handler returned another error after its context was cancelled.
type overrunError struct {
	limit time.Duration
	err   error
}

func (e *overrunError) Error() string {
	return fmt.Sprintf("the handler overran its limit of %v: %v", e.limit, e.err)
}
func (e *overrunError) Unwrap() []error { return []error{context.DeadlineExceeded, e.err} }

// Run calls user code as [Safely] does and treats an overrun of limit as a failure.
func Run(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return Overrun(ctx, limit, Safely(func() error { return fn(ctx) }))
}

// Overrun returns err as an overrun if the deadline of ctx, which is limit, has passed.
func Overrun(ctx context.Context, limit time.Duration, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &overrunError{limit, err}
	}
	return err
}

// Safely calls user code and returns a panic as an error. It uses a goroutine of its own, so that a
// call of runtime.Goexit (as by testing.T.FailNow) also becomes an error and does not end the
// caller's goroutine.
func Safely(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		err := ErrExited
		defer func() { result <- err }()
		err = Here(fn)
	}()
	return <-result
}

// Here calls user code in the caller's goroutine and returns a panic as an error. If user code
// exits the goroutine, Here does not return; the failure is then [ErrExited].
func Here(fn func() error) (err error) { return callback.Here("", fn) }

// ErrExited is the failure of a handler that exited its goroutine.
var ErrExited error = &callback.Abrupt{How: "the handler's goroutine exited"}

// Abrupt reports whether err is the panic, exit or overrun of a handler. Such an error does not
// tell how far the handler came.
func Abrupt(err error) bool { return callback.Panicked(err) || errors.As(err, new(*overrunError)) }
