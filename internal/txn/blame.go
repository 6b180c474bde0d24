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

// ErrAlone means that the server answers others, and has not been replaced: what ended the
// transaction is its own. An outage charges no attempt, so without this a handler that loses its
// connection each time would be tried for ever, and hold up its lane and its batches.
var ErrAlone = errors.New("the server answers others")

// Lost reports whether user code was lost with its connection, in an outage or alone.
func Lost(err error) bool { return errors.Is(err, ErrTaken) || errors.Is(err, ErrAlone) }

// ErrTaken means that an outage took the transaction from user code: it had begun, so the server
// answered before. One attempt has [verdict.Bound] of these in a row; the last is charged.
var ErrTaken = errors.New("the server went away while the handler ran")

// Taken is the failure of an attempt that was lost too often in a row.
func Taken() error {
	return &pawl.Error{Op: "handler", Code: pawl.CodeTransactionLost,
		Err:  fmt.Errorf("%w, %d times in a row", ErrTaken, verdict.Bound),
		Hint: "look in the server's log for what ended it: a statement of this handler may crash it, or the system may kill it for want of memory"}
}

// blameLimit bounds the question whether the server answers others. It is an outage if that is not
// answered in time.
const blameLimit = 2 * time.Second

// serverKey is where a connection keeps the serverRun of its server.
const serverKey = "github.com/pawl-go/pawl/server"

// serverRun is SQL for a text that changes when the server starts, and when it starts again by itself
// after the crash of a session. Such a server keeps the time of its start, but resets its statistics.
const serverRun = watched.Server + ` operator(pg_catalog.||) ' ' operator(pg_catalog.||)
       coalesce(extract(epoch from pg_catalog.pg_stat_get_bgwriter_stat_reset_time())::pg_catalog.text, '')`

// name asks for the serverRun of a connection's server in the first transaction on it.
func name(batch *pgx.Batch, conn *pgconn.PgConn) {
	if _, known := conn.CustomData()[serverKey]; known {
		return
	}
	batch.Queue("select " + serverRun).QueryRow(func(row pgx.Row) error {
		var server string
		err := row.Scan(&server)
		conn.CustomData()[serverKey] = server
		return err
	})
}

// blame decides what an error means that looks like an outage, of a transaction that user code has
// had. If the same server takes writes of others now, the error is [pawl.CodeTransactionLost], a
// failure of that code; a COMMIT without an answer stays one, and is [ErrAlone]. Else err is
// returned, and is [ErrTaken]: nothing speaks against an outage.
func (o *Opened) blame(ctx context.Context, err error) error {
	if err == nil || !o.wasLent || ctx.Err() != nil || errors.Is(err, ErrEnded) || errors.Is(err, ErrTaken) || !pawl.Unreachable(err) {
		return err
	}
	settings, alone := "", false
	if lostAlone(err) {
		settings, alone = o.answersOthers(ctx)
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
		return &pawl.Error{Op: "handler", Code: pawl.CodeCommitUnknown, Err: errors.Join(why, err)}
	}
	return &pawl.Error{Op: "handler", Code: pawl.CodeTransactionLost, Err: errors.Join(ErrLost, why, err)}
}

// A takenError is [ErrTaken] beside what the transaction failed with.
type takenError struct{ error }

func (e *takenError) Unwrap() []error { return []error{e.error, ErrTaken} }

// lostAlone reports whether an error can be one of this transaction alone. A server that is full,
// or in which another session has crashed (57P02), fails those that did nothing.
func lostAlone(err error) bool {
	code := pawl.CodeOf(err)
	return pawl.Unreachable(err) && (code == "" || verdict.Of(code).Lost == verdict.Ask)
}

// answersOthers reports whether the server of the transaction answers on another connection, and
// takes writes. settings are those that end sessions.
func (o *Opened) answersOthers(ctx context.Context) (settings string, yes bool) {
	const query = "select " + serverRun + `,
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
