package txn

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
)

// Commit commits tx and classifies a failure: [pawl.ErrCommitUnknown] if the transaction may be durable all the same,
// else an error that means it certainly is not. Its wait ends with the pool's patience; see [patiently].
func Commit(ctx context.Context, op string, tx pgx.Tx) error {
	if o, is := tx.(*Opened); is {
		return o.CommitWith(context.WithoutCancel(ctx), op, func(*pgx.Batch) {})
	}
	return patiently(ctx, op, tx.Conn(), tx.Commit, func() bool { return true })
}

// classify knows three outcomes. PostgreSQL answers a COMMIT it refuses with severity ERROR, or rolls back a failed
// transaction and says so; both are a definite no. (Severity itself is translated, SeverityUnlocalized is not.)
// Everything else is unknown: an I/O error, a timeout, and any FATAL, because 57P01 can arrive after the local commit, in
// the wait for a synchronous standby. What the driver thinks of retrying (pgconn.SafeToRetry) is not asked: pgx v5.9 to
// v5.12 answer true for statements the server has executed.
func classify(op string, err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		e := swallowed(err)
		e.Op = op
		return e
	case errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR":
		return pawl.Wrap(op, err)
	}
	return unknown(op, err)
}

func unknown(op string, err error) error {
	return &pawl.Error{Op: op, Code: pawl.CodeCommitUnknown, Err: err}
}

// swallowed is the failure of a transaction that a statement has aborted whose error was not returned.
func swallowed(err error) *pawl.Error {
	if err == nil {
		err = errors.New("the transaction is aborted (SQLSTATE 25P02)")
	}
	return &pawl.Error{Op: "handler", Code: verdict.FailedTransaction, Err: err, Hint: "a statement of the handler failed and its error was swallowed; return it"}
}

// Refused reports whether a statement sent on its own certainly had no effect: the database answered ERROR, or there was
// no connection to send it on. Anything else may be a lost reply.
func Refused(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	return errors.As(err, &connect) || errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}

// Rollback ends tx, detached from ctx's end but not for long. An error only means that the connection is gone, and the
// transaction with it.
func Rollback(ctx context.Context, tx pgx.Tx) {
	if o, is := tx.(*Opened); is && o.ended {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}
