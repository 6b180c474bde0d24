package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// ErrLost means that the transaction itself is gone, not only the work since the savepoint.
var ErrLost = errors.New("the transaction was lost")

// ErrEnded means that user code ended the transaction it was lent, or tried to. If it is [pawl.ErrCommitUnknown] as well, it did, through the
// connection, and what it wrote may be durable. Else nothing was sent.
var ErrEnded = errors.New("the handler ended the transaction it was lent; it must not commit or roll back")

// endedByText is the failure of a transaction that user code has ended behind our back. The claim may have become durable
// together with the effect: ask again.
func endedByText(cause error) error {
	return &pawl.Error{Op: "handler", Code: pawl.CodeCommitUnknown, Err: errors.Join(ErrLost, ErrEnded, cause)}
}

// An overrunError is the failure of a handler that did not end within its limit. It stays one, and is charged, whatever
// the handler made of its cancelled context.
type overrunError struct {
	limit time.Duration
	err   error
}

func (e *overrunError) Error() string {
	return fmt.Sprintf("the handler overran its limit of %v: %v", e.limit, e.err)
}
func (e *overrunError) Unwrap() []error { return []error{context.DeadlineExceeded, e.err} }

// Run calls user code as [Safely] does; its overrun is a failure, too.
func Run(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return Overrun(ctx, limit, Safely(func() error { return fn(ctx) }))
}

// Overrun returns the failure of user code whose context had a limit.
func Overrun(ctx context.Context, limit time.Duration, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &overrunError{limit, err}
	}
	return err
}

// Safely calls user code, whose panic is a failure like any other. It does so in a goroutine of its own, so that
// an exit of it (runtime.Goexit, as by testing.T.FailNow) is one too and not the silent end of ours.
func Safely(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		err := ErrExited
		defer func() { result <- err }()
		err = Here(fn)
	}()
	return <-result
}

// Here calls user code in the caller's goroutine. Its panic is a failure like any other. If it exits the goroutine, Here does not
// return, and the failure is [ErrExited].
func Here(fn func() error) (err error) { return callback.Here("", fn) }

// ErrExited is the failure of a handler that exited its goroutine.
var ErrExited error = &callback.Abrupt{How: "the handler's goroutine exited"}

// Abrupt reports whether err is the panic, exit or overrun of a handler, which says nothing of how far it came.
func Abrupt(err error) bool { return callback.Panicked(err) || errors.As(err, new(*overrunError)) }
