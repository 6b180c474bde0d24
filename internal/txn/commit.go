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

// Commit commits tx and classifies a failure. [pawl.ErrCommitUnknown] means that the transaction
// may be durable. Any other error means that it is not. Commit waits no longer than the pool's
// commit timeout; see [patiently].
func Commit(ctx context.Context, op string, tx pgx.Tx) error {
	if o, is := tx.(*Opened); is {
		return o.CommitWith(context.WithoutCancel(ctx), op, func(*pgx.Batch) {})
	}
	return patiently(ctx, op, tx.Conn(), tx.Commit, func() bool { return true })
}

// classify distinguishes three outcomes. PostgreSQL answers a refused COMMIT with severity ERROR.
// It answers the COMMIT of a failed transaction with ROLLBACK. Both mean that nothing was
// committed. (Severity is translated; SeverityUnlocalized is not.) Everything else is unknown: an
// I/O error, a timeout, and any FATAL. 57P01 is FATAL and can arrive after the local commit, during
// the wait for a synchronous standby. classify does not use pgconn.SafeToRetry, because pgx v5.9 to
// v5.12 return true for statements that the server has executed.
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

// swallowed returns the error for an aborted transaction in which user code ignored the error of a
// statement.
func swallowed(err error) *pawl.Error {
	if err == nil {
		err = errors.New("the transaction is aborted (SQLSTATE 25P02)")
	}
	return &pawl.Error{Op: "handler", Code: verdict.FailedTransaction, Err: err, Hint: "a statement of the handler failed and its error was swallowed; return it"}
}

// Refused reports whether a statement sent on its own certainly had no effect: the database
// answered ERROR, or no connection was established. After any other error the reply may have been
// lost.
func Refused(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	return errors.As(err, &connect) || errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}

// Rollback rolls tx back within 5 seconds, even if ctx has ended. It returns no error: a failure
// means that the connection is gone, and the transaction with it.
func Rollback(ctx context.Context, tx pgx.Tx) {
	if o, is := tx.(*Opened); is && o.ended {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}
