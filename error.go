package pawl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/internal/verdict"
)

//go:generate go run ./schema/internal/gen/sqlstates

// A Code is a SQLSTATE: Pawl's own in class P4, PostgreSQL's elsewhere. The same code stands in SQL, Go, logs and
// the command line.
type Code string

type codeText struct{ meaning, next string }

// An Error names the operation that failed, a stable code, and the next step for a person.
type Error struct {
	Op   string // the operation, as in metrics and crash points: "inbox.claim", "job.finish"
	Code Code   // empty if the failure has no code of ours or of the database
	Err  error  // the cause; may be nil
	Hint string // the next step, if there is a better one than the code's own
}

// Error reads "op: code meaning: cause (next step)".
func (e *Error) Error() string {
	text := codeTexts[e.Code]
	parts := make([]string, 0, 3)
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	if own := strings.TrimSpace(string(e.Code) + " " + text.meaning); own != "" && text.meaning != "" {
		parts = append(parts, own)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	message := strings.Join(parts, ": ")
	next := e.Hint
	if next == "" {
		next = text.next
	}
	if next != "" {
		message += " (" + next + ")"
	}
	return message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the sentinels by code, so that errors.Is(err, ErrFenceLost) asks for behaviour and not for text.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code != "" && t.Code == e.Code
}

// Wrap gives err an operation and, where the database sent a SQLSTATE, its code and hint. It returns nil for nil and
// leaves an error that already is an [Error] alone.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	wrapped := &Error{Op: op, Err: err, Hint: readingHint(err)}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		wrapped.Code = Code(pg.Code)
		if wrapped.Hint = pg.Hint; setupHint(pg) != "" {
			wrapped.Hint = setupHint(pg)
		}
		if _, ours := codeTexts[wrapped.Code]; ours {
			wrapped.Err = &serverError{pg}
		}
	}
	return wrapped
}

// serverError prints one of our own SQLSTATEs without repeating its severity and code.
type serverError struct{ pg *pgconn.PgError }

func (e *serverError) Error() string {
	if e.pg.Detail == "" {
		return e.pg.Message
	}
	return e.pg.Message + ", " + e.pg.Detail
}
func (e *serverError) Unwrap() error { return e.pg }

// CodeOf returns the code of err: Pawl's if it has one, else the SQLSTATE the database sent, else "".
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) && e.Code != "" {
		return e.Code
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return Code(pg.Code)
	}
	return ""
}

// Retryable reports whether the same call may succeed later although nothing else changes: the intent is in progress
// (P4029, 55P03), the transaction lost a race (40001, 40P01: restart it whole), or the database is short of
// connections or disk, read-only, restarting or unreachable. It reads the table of [Classify] by the code of err. A lost reply to COMMIT is not
// retryable in this sense: see [MayHaveHappened].
func Retryable(err error) bool {
	if code := CodeOf(err); code != "" {
		return Retry(verdict.Of(code).Retry) == RetryYes
	}
	return Unreachable(err)
}

// MayHaveHappened reports whether the effect of the failed call may be durable all the same: the reply to COMMIT was
// lost ([CodeCommitUnknown]). Do not run the work again on this news; claim the same key and read the answer.
func MayHaveHappened(err error) bool { return CodeOf(err) == CodeCommitUnknown }

// Unreachable reports whether err means that the database could not be reached, dropped the
// connection, or takes no writes now (25006: read-only, as a standby is; 53100: the disk is full),
// rather than that it refused the statement. Attempts are not charged for it. A handler that loses
// its transaction while the server answers others fails with [ErrTransactionLost] instead, which is
// charged.
func Unreachable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return true
	}
	if code := CodeOf(err); code != "" {
		return verdict.IsOutage(code)
	}
	return brokenConn(err)
}

// brokenConn recognises what a socket that died in the middle looks like through pgx.
func brokenConn(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return false // a deadline of ours, not the network's
	}
	text := err.Error()
	for _, sign := range []string{"conn closed", "unexpected EOF", "broken pipe", "connection reset",
		"closed network connection", "connection timed out", "no route to host", "network is unreachable"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// Final wraps a handler's error to say that no retry can help: the delivery or job goes to the dead letters at once,
// with its payload.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

// IsFinal reports whether a handler declared err final; or the database refused the data itself: SQLSTATE class 22 (bad data) or
// 23514 (a CHECK); or something that the handler asked for, a job or a command, is known under that key with another payload, or has
// failed for good. All of them will fail the same way next time.
func IsFinal(err error) bool {
	var final *finalError
	if errors.As(err, &final) {
		return true
	}
	return verdict.Of(CodeOf(err)).Handler == verdict.Final
}

type finalError struct{ err error }

func (e *finalError) Error() string { return fmt.Sprintf("final: %v", e.err) }
func (e *finalError) Unwrap() error { return e.err }

// Swept reports whether err says that somebody drives again what it is about, if whoever works on it dies: a claimed row of package
// guard, while a sweeper runs in this process. The message that asked may be acknowledged.
func Swept(err error) bool {
	var e interface{ Swept() bool }
	return errors.As(err, &e) && e.Swept()
}
