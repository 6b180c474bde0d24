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

// A Code is a SQLSTATE, the same in SQL, Go, logs and the command line. Pawl's own are in class P4.
type Code string

type codeText struct{ meaning, next string }

// An Error names the operation that failed, a stable code, and the next step for a person.
type Error struct {
	Op   string // the operation, as in metrics: "inbox.claim", "job.finish"
	Code Code   // empty if neither Pawl nor the database gave a code
	Err  error  // the cause; may be nil
	Hint string // the next step; empty: the code's own
}

// Error returns "op: code meaning: cause (next step)".
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

// Is matches the sentinels by code, so errors.Is(err, ErrFenceLost) does not depend on the text.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code != "" && t.Code == e.Code
}

// Wrap gives err an operation, and the database's SQLSTATE and hint if there are any. It returns
// nil for nil, and leaves an error that already is an [Error] as it is.
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

// serverError prints one of Pawl's own SQLSTATEs without repeating its severity and code.
type serverError struct{ pg *pgconn.PgError }

func (e *serverError) Error() string {
	if e.pg.Detail == "" {
		return e.pg.Message
	}
	return e.pg.Message + ", " + e.pg.Detail
}
func (e *serverError) Unwrap() error { return e.pg }

// CodeOf returns the code of err: Pawl's if it has one, else the database's SQLSTATE, else "".
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

// Retryable reports whether the same call may succeed later although nothing else changes. That is
// so if the intent is in progress (P4029, 55P03), or the transaction lost a race (40001, 40P01:
// restart it whole). It is also so if the database is short of connections or disk, read-only,
// restarting or unreachable. The table of [Classify] decides by code. For a lost reply to COMMIT
// see [MayHaveHappened].
func Retryable(err error) bool {
	if code := CodeOf(err); code != "" {
		return Retry(verdict.Of(code).Retry) == RetryYes
	}
	return Unreachable(err)
}

// MayHaveHappened reports whether err may hide a durable effect, because the reply to COMMIT was
// lost ([CodeCommitUnknown]). Do not run the work again: claim the same key and read the answer.
func MayHaveHappened(err error) bool { return CodeOf(err) == CodeCommitUnknown }

// Unreachable reports whether the database could not be reached, dropped the connection, or takes
// no writes now: it is read-only (25006), as a standby is, or its disk is full (53100). Such errors
// are not charged as attempts. If only a handler's transaction is lost while the server answers on
// other connections, the error is [ErrTransactionLost], which is charged.
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

// brokenConn recognises, by pgx's error texts, a socket that broke during a call.
func brokenConn(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return false // the caller's deadline, not the network's
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

// Final wraps a handler's error that no retry can fix. The delivery or job becomes a dead letter at
// once, with its payload.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

// IsFinal reports whether every retry would fail: a handler declared err [Final], or the database
// refused the data (SQLSTATE class 22, bad data, or 23514, CHECK). It is also true if a job or
// command that the handler requested exists with another payload, or has failed for good.
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

// Swept reports whether err is about a row of package guard that another attempt has claimed, and a
// guard.Sweeper in this process retries the row if that attempt dies. A message that asked for the
// row's work may be acknowledged.
func Swept(err error) bool {
	var e interface{ Swept() bool }
	return errors.As(err, &e) && e.Swept()
}
