package txn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/internal/watched"
)

// ErrAlone means that the server still answers on other connections and has not restarted, so this
// transaction failed on its own. An outage charges no attempt. Without ErrAlone, a handler that
// loses its connection each time would be retried forever, and would hold up its lane and its
// batches.
var ErrAlone = errors.New("the server answers others")

// Lost reports whether the transaction lost its connection under user code, in an outage or alone.
func Lost(err error) bool { return errors.Is(err, ErrTaken) || errors.Is(err, ErrAlone) }

// ErrTaken means that an outage ended the transaction while user code ran. The server had answered
// BEGIN, so it was up before. An attempt may have [verdict.Bound] of these in a row; the last one
// is charged.
var ErrTaken = errors.New("the server went away while the handler ran")

// Taken returns the error for an attempt that lost its transaction [verdict.Bound] times in a row.
func Taken() error {
	return &pawl.Error{Op: "handler", Code: pawl.CodeTransactionLost,
		Err:  fmt.Errorf("%w, %d times in a row", ErrTaken, verdict.Bound),
		Hint: "look in the server's log for what ended it: a statement of this handler may crash it, or the system may kill it for want of memory"}
}

// blameLimit bounds the query that checks whether the server answers. A timeout counts as an
// outage.
const blameLimit = 2 * time.Second

// serverKey is the key in a connection's CustomData under which its [watched.Run] is kept.
const serverKey = "github.com/pawl-go/pawl/server"

// name reads the [watched.Run] of a connection's server in the first transaction on that
// connection.
func name(batch *pgx.Batch, conn *pgconn.PgConn) {
	if _, known := conn.CustomData()[serverKey]; known {
		return
	}
	batch.Queue("select " + watched.Run).QueryRow(func(row pgx.Row) error {
		var server string
		err := row.Scan(&server)
		conn.CustomData()[serverKey] = server
		return err
	})
}

// blame interprets an error that looks like an outage, if user code has had the transaction. If the
// same server accepts writes on another connection now, the error becomes
// [pawl.CodeTransactionLost]. An unanswered COMMIT stays [pawl.CodeCommitUnknown] and becomes
// [ErrAlone]. Otherwise an outage is assumed: if the connection is closed, the error becomes
// [ErrTaken].
func (o *Opened) blame(ctx context.Context, err error) error {
	if err == nil || !o.wasLent || ctx.Err() != nil || errors.Is(err, ErrEnded) || errors.Is(err, ErrTaken) || !pawl.Unreachable(err) {
		return err
	}
	settings, alone := "", false
	if lostAlone(err) {
		settings, alone = o.acceptsWrites(ctx)
	}
	switch {
	case alone:
	case o.Tx.Conn().IsClosed():
		return &takenError{err}
	default:
		return err
	}
	why := ErrAlone
	if settings != "" {
		why = fmt.Errorf("%w (%s)", ErrAlone, settings)
	}
	if pawl.MayHaveHappened(err) {
		return &pawl.Error{Op: "handler", Code: pawl.CodeCommitUnknown, Err: errors.Join(why, err), Hint: endedSession}
	}
	return &pawl.Error{Op: "handler", Code: pawl.CodeTransactionLost, Err: errors.Join(ErrLost, why, err)}
}

// endedSession is the hint for a COMMIT that met a closed connection. If it could not be written,
// the driver does not read the message in which the server gave the reason.
const endedSession = "the database has the answer; look for what ended the session: transaction_timeout and idle_in_transaction_session_timeout are usual"

// A takenError adds [ErrTaken] to the error of the transaction.
type takenError struct{ error }

func (e *takenError) Unwrap() []error { return []error{e.error, ErrTaken} }

// lostAlone reports whether an error may concern this transaction alone. Errors of a full server,
// or of a server in which another session crashed (57P02), do not.
func lostAlone(err error) bool {
	code := pawl.CodeOf(err)
	return pawl.Unreachable(err) && (code == "" || verdict.Of(code).Lost == verdict.Ask)
}

// acceptsWrites reports whether the transaction's server accepts writes on another connection.
// settings lists the server's timeouts that end sessions.
func (o *Opened) acceptsWrites(ctx context.Context) (settings string, yes bool) {
	const query = "select " + watched.Run + `,
       not pg_catalog.pg_is_in_recovery() and pg_catalog.current_setting('default_transaction_read_only') operator(pg_catalog.=) 'off',
       array(select s.name operator(pg_catalog.||) ' = ' operator(pg_catalog.||) s.setting operator(pg_catalog.||) coalesce(s.unit, '')
               from pg_catalog.pg_settings as s
              where s.name operator(pg_catalog.=) any (array['transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout'])
                and s.setting operator(pg_catalog.<>) '0'
              order by s.name)`
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), blameLimit)
	defer cancel()
	var (
		now    string
		writes bool
		ends   []string
	)
	err := o.pool.QueryRow(ctx, query).Scan(&now, &writes, &ends)
	return strings.Join(ends, ", "), err == nil && writes && now == o.server
}
