package txn

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/verdict"
)

// The savepoint's name is random for each process. A handler's savepoint never has it, so the two
// cannot hide each other. A name for each transaction would be as safe, but every connection would
// have to prepare each name anew.
var (
	savepointName    = "pawl_" + rand.Text()[:13]
	setSavepoint     = "savepoint " + savepointName
	releaseSavepoint = "release savepoint " + savepointName
	returnSavepoint  = "rollback to savepoint " + savepointName
)

// An Opened is a transaction that costs two round trips beside those of the user's statements.
// BEGIN and the first statements travel in one message, the last statements and COMMIT in another.
type Opened struct {
	pgx.Tx
	conn           pooledConn
	driver         *stdlib.Conn // of conn, if the [Opener] has SQL
	before         settings     // of the session, before BEGIN
	server         string       // watched.Run of its server; see blame
	savepoint      savepoint    // the savepoint to which user code is rolled back
	wasLent        bool         // user code has had the transaction
	userCodeRan    bool         // user code has succeeded since Pawl last restored its settings
	sessionChanged bool         // user code changed the session
	connExposed    bool         // user code may have had the connection itself
	ended          bool
	commit         atomic.Int32 // open, answered or left
	pool           *pgxpool.Pool
	after          []func(pawl.DB) // see AfterCommit
}

// savepoint is the state of the transaction's savepoint.
type savepoint int

const (
	savepointNone savepoint = iota
	// no user code has run since it was set, or its work was rolled back
	savepointActive
	savepointSucceeded // user code has succeeded; the savepoint must still be released
)

// ReplyLimit bounds the wait for the reply to BEGIN and to the claim that travels with it. A
// claim waits at most two seconds for a lock. A server whose machine has died sends nothing;
// without this limit, Linux would report its connections as broken only after 15 minutes.
const ReplyLimit = 15 * time.Second

// An Opener opens transactions on a pool's connections. If SQL is set, they can be lent as a
// *sql.Tx too; see [LendSQL]. Limit bounds the wait for a connection, whose ping may not be
// answered, and then the wait for the first reply. Default: the end of ctx for a connection,
// [ReplyLimit] for the reply.
type Opener struct {
	Pool  *pgxpool.Pool
	SQL   bool
	Limit time.Duration
}

// Open begins a transaction, sends the statements that claim queues, and sets a savepoint, in one
// round trip. User statements do not travel with it, because a claim that answers with a row does
// not stop the statements sent after it. The server ends the transaction if it is idle for the time
// given; see [Begin]. With idle 0, claim must set that limit.
func (o Opener) Open(ctx context.Context, op string, level pgx.TxIsoLevel, idle time.Duration, claim func(*pgx.Batch)) (*Opened, error) {
	tx, err := o.Start(ctx, op, level, func(b *pgx.Batch) {
		if idle > 0 {
			b.Queue(endWhenSilent(idle))
		}
		claim(b)
		b.Queue(setSavepoint)
	})
	if err == nil {
		tx.savepoint = savepointActive
	}
	return tx, err
}

// Open opens a transaction with a default [Opener] for the pool.
func Open(ctx context.Context, pool *pgxpool.Pool, op string, level pgx.TxIsoLevel, idle time.Duration, claim func(*pgx.Batch)) (*Opened, error) {
	return Opener{Pool: pool}.Open(ctx, op, level, idle, claim)
}

// Begin starts a transaction that the server ends after it was idle for the time given. This bounds
// how long a frozen process, or a handler that ignores its cancelled context, holds its rows and
// keeps vacuum from removing dead ones. Without it they would be held as long as the connection
// lasts.
func (o Opener) Begin(ctx context.Context, op string, idle time.Duration) (*Opened, error) {
	return o.Start(ctx, op, "", func(b *pgx.Batch) { b.Queue(endWhenSilent(idle)) })
}

// Begin begins a transaction with a default [Opener] for the pool.
func Begin(ctx context.Context, pool *pgxpool.Pool, op string, idle time.Duration) (*Opened, error) {
	return Opener{Pool: pool}.Begin(ctx, op, idle)
}

// endWhenSilent returns a SET statement, not a call of set_config, because that would cost a query.
// There are few different limits, so few statements get prepared.
func endWhenSilent(idle time.Duration) string {
	return fmt.Sprintf("set local idle_in_transaction_session_timeout = %d", min(idle.Milliseconds(), math.MaxInt32))
}

// Start begins a transaction and sends the statements that first queues, in one message. first must
// set the idle limit; see [Begin].
//
// Errors: 08006, the database is unreachable, if no answer came in time.
func (o Opener) Start(ctx context.Context, op string, level pgx.TxIsoLevel, first func(*pgx.Batch)) (*Opened, error) {
	conn, err := o.acquireInTime(ctx, op)
	if err != nil {
		return nil, pawl.Wrap(op, err)
	}
	limit := cmp.Or(o.Limit, ReplyLimit)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: level})
	batch.Queue(keepRole)
	first(batch)
	name(batch, conn.Conn().PgConn())
	before := settingsOf(conn.Conn().PgConn())
	if err := plansOf(conn.Conn()).keep(limited, conn.Conn()); err != nil {
		conn.Release()
		return nil, pawl.Wrap(op, err)
	}
	results := conn.Conn().SendBatch(limited, batch)
	tx := &Opened{Tx: results.Tx(), conn: conn, pool: o.Pool, before: before}
	if c, with := conn.(withDriver); with {
		tx.driver = c.driver
	}
	if err := results.Close(); err != nil {
		Rollback(ctx, tx)
		conns.LeaveStandby(o.Pool, err)
		if silent := unanswered(ctx, limited, op, limit, err); silent != nil {
			o.Pool.Reset() // the other connections to that server are silent, too
			err = silent
		}
		return nil, pawl.Wrap(op, err)
	}
	tx.server, _ = conn.Conn().PgConn().CustomData()[serverKey].(string)
	return tx, nil
}

// acquireInTime takes a connection from the pool within Limit.
func (o Opener) acquireInTime(ctx context.Context, op string) (pooledConn, error) {
	if o.Limit == 0 {
		return o.acquire(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	conn, err := o.acquire(limited)
	if silent := unanswered(ctx, limited, op, o.Limit, err); silent != nil {
		err = silent
	}
	return conn, err
}

// unanswered returns the error for an unreachable database if limited ended the wait, not ctx.
// Otherwise it returns nil.
func unanswered(ctx, limited context.Context, op string, limit time.Duration, err error) error {
	if err == nil || ctx.Err() != nil || !errors.Is(limited.Err(), context.DeadlineExceeded) || pawl.CodeOf(err) != "" {
		return nil
	}
	return &pawl.Error{Op: op, Code: verdict.ConnectionFailure, Err: fmt.Errorf("the database did not answer within %v: %w", limit, err)}
}

// Pool returns the pool of the transaction's connection.
func (o *Opened) Pool() *pgxpool.Pool { return o.pool }

// Guard runs user code behind a savepoint. If fn fails, panics or overruns limit, Guard rolls back
// to the savepoint and returns fn's error; the transaction stays usable. If the transaction did not
// survive, the error also is [ErrLost]. Guard may be called again: work that succeeded before is
// kept.
func (o *Opened) Guard(ctx context.Context, limit time.Duration, fn func(context.Context, pgx.Tx) error) error {
	if o.savepoint != savepointActive {
		if err := o.send(ctx, func(b *pgx.Batch) { b.Queue(setSavepoint) }); err != nil {
			return errors.Join(ErrLost, err)
		}
		o.savepoint = savepointActive
	}
	l := lend(o.Tx, o.driver)
	failure := o.run(ctx, l, limit, fn)
	if failure == nil {
		if failure = o.noteSuccess(ctx); failure == nil {
			o.userCodeRan = true
			o.after = append(o.after, l.taken()...)
			return nil
		}
	}
	return o.blame(ctx, o.returned(ctx, failure))
}

// Lend runs user code in the transaction, whose id is xact. It sets a savepoint only if user code
// asks for the connection. If fn fails, panics or overruns limit, Lend rolls the transaction back
// and returns fn's error. If the connection was lost with it, the error also is [ErrLost]. If fn
// had ended the transaction through the connection, its later writes may be durable, and the error
// also is [ErrEnded].
func (o *Opened) Lend(ctx context.Context, limit time.Duration, xact string, fn func(context.Context, pgx.Tx) error) error {
	l := lend(o.Tx, o.driver)
	l.bare.wanted = true
	failure := o.run(ctx, l, limit, fn)
	if failure == nil {
		failure = o.whole()
	}
	if failure == nil {
		o.userCodeRan = true
		o.after = append(o.after, l.taken()...)
		return nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if o.endedByText(back, xact, &l.bare) {
		failure = endedByText(failure)
	}
	if err := o.Rollback(back); err != nil && !errors.As(failure, new(*overrunError)) {
		failure = errors.Join(ErrLost, failure, err)
	}
	return o.blame(ctx, failure)
}

// endedByText reports whether user code has ended the transaction xact through the connection. An
// aborted transaction does not answer for its id. It is recognised by the savepoint that was set
// when user code got the connection.
func (o *Opened) endedByText(ctx context.Context, xact string, b *bare) bool {
	conn := o.Tx.Conn().PgConn()
	if conn.IsClosed() || conn.IsBusy() {
		return false
	}
	switch conn.TxStatus() {
	case 'I':
		return true
	case 'E':
		return b.mayBeReplaced(ctx, o.Tx.Conn())
	}
	var now *string
	err := o.Tx.QueryRow(ctx, "select pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text").Scan(&now)
	return err == nil && (now == nil || *now != xact)
}

// whole returns the reason why nothing more can be sent in the transaction, or nil.
func (o *Opened) whole() error {
	switch conn := o.Tx.Conn().PgConn(); {
	case conn.IsClosed():
		return errors.New("the connection was lost")
	case conn.IsBusy():
		return errors.New("the handler left rows unread: close them")
	case conn.TxStatus() == 'E':
		return swallowed(nil)
	}
	return nil
}

// Unbroken reports whether this certainly is the transaction that was opened, so that no query is
// needed to check. It is if user code had no access to the connection and none of its statements
// could end the transaction.
func (o *Opened) Unbroken() bool {
	conn := o.Tx.Conn().PgConn()
	return !o.connExposed && conn.TxStatus() == 'T' && legible(conn)
}

// legible reports whether the server parses statements as look does. In some client encodings a
// backslash or a quote can be the second byte of a character.
func legible(conn *pgconn.PgConn) bool {
	return conn.ParameterStatus("standard_conforming_strings") == "on" && conn.ParameterStatus("client_encoding") == "UTF8"
}

func (o *Opened) run(ctx context.Context, l *lent, limit time.Duration, fn func(context.Context, pgx.Tx) error) error {
	o.wasLent = true
	failure := Run(ctx, limit, func(ctx context.Context) error { return fn(ctx, l) })
	unbelievable := l.end()
	if errors.Is(unbelievable, errRunning) {
		l.sever(ctx, o.Tx.Conn().PgConn())
	}
	o.sessionChanged = o.sessionChanged || l.changesSession.Load()
	o.connExposed = o.connExposed || l.connExposed.Load()
	l.forget(ctx)
	switch {
	case failure == nil:
		return unbelievable
	case errors.Is(failure, ErrEnded) && l.triedToEnd.Load():
		return errors.Join(ErrLost, failure)
	}
	return failure
}

// noteSuccess records that user code has succeeded behind the savepoint. It normally sends nothing:
// the release travels with a later message. If the connection's state is unexpected, pass sends the
// release, whose error tells the reason.
func (o *Opened) noteSuccess(ctx context.Context) error {
	if conn := o.Tx.Conn().PgConn(); conn.IsClosed() || conn.IsBusy() || conn.TxStatus() != 'T' {
		_, err := o.Tx.Exec(ctx, releaseSavepoint)
		return err
	}
	o.savepoint = savepointSucceeded
	return nil
}

// returned rolls back to the savepoint after a failure and checks whether the savepoint still
// exists.
func (o *Opened) returned(ctx context.Context, failure error) error {
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := o.Tx.Exec(back, returnSavepoint)
	switch {
	case err == nil:
		return failure
	case endedText(err), o.Tx.Conn().PgConn().TxStatus() == 'I' && !o.Tx.Conn().IsClosed():
		return endedByText(failure)
	case errors.As(failure, new(*overrunError)):
		return errors.Join(ErrLost, failure) // cancelling cost the connection
	}
	return errors.Join(ErrLost, failure, err)
}

// CommitWith sends the statements that last queues, and COMMIT, in one message. The server stops at
// the first that fails. If ctx has ended, nothing is sent; if ctx ends later, it does not cut the
// commit short. Errors are those of the function [Commit].
func (o *Opened) CommitWith(ctx context.Context, op string, last func(*pgx.Batch)) error {
	if err := ctx.Err(); err != nil {
		return pawl.Wrap(op, err)
	}
	own := &pgx.Batch{}
	last(own)
	err := patiently(ctx, op, o.Conn(), func(ctx context.Context) error {
		err := o.sendLast(ctx, own)
		if !o.commit.CompareAndSwap(open, replied) {
			o.giveBack()
		}
		return err
	}, o.leave)
	if err == nil {
		o.release()
		for _, fn := range o.after {
			fn(o.pool)
		}
	}
	return o.blame(ctx, err)
}

// sendLast sends the last statements and COMMIT. COMMIT alone goes as a simple query, which takes
// fewer messages than a batch.
func (o *Opened) sendLast(ctx context.Context, own *pgx.Batch) error {
	batch, err := o.ready(ctx, own)
	if err != nil {
		return err
	}
	if batch.Len() > 0 {
		batch.Queue("commit").Exec(committed)
		return o.flush(ctx, batch)
	}
	tag, err := o.Tx.Exec(ctx, "commit")
	if err == nil {
		err = committed(tag)
	}
	return err
}

// committed returns an error if the server answered COMMIT with ROLLBACK, as it does for an aborted
// transaction.
func committed(tag pgconn.CommandTag) error {
	if tag.String() == "ROLLBACK" {
		return pgx.ErrTxCommitRollback
	}
	return nil
}

// The states of a COMMIT: without a reply, with a reply, or left to run without its caller.
const (
	open int32 = iota
	replied
	left
)

// leave gives the connection to the COMMIT that still runs. It returns false if the reply has just
// arrived.
func (o *Opened) leave() bool {
	o.ended = o.commit.CompareAndSwap(open, left)
	return o.ended
}

// Commit commits the transaction without further statements.
func (o *Opened) Commit(ctx context.Context) error {
	return o.CommitWith(ctx, "commit", func(*pgx.Batch) {})
}

// Rollback rolls the transaction back unless it has ended.
func (o *Opened) Rollback(ctx context.Context) error {
	if o.ended {
		return pgx.ErrTxClosed
	}
	defer o.release()
	return o.Tx.Rollback(ctx)
}

func (o *Opened) release() {
	o.ended = true
	o.giveBack()
}

// giveBack returns the connection to the pool. It closes the connection first if user code has
// changed the session. The pool closes one that is still in a transaction.
func (o *Opened) giveBack() {
	if conn := o.conn.Conn(); !conn.IsClosed() && (o.sessionChanged || settingsOf(conn.PgConn()) != o.before) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}
	o.conn.Release()
}

// send sends the statements that queue queues, under Pawl's role and settings.
func (o *Opened) send(ctx context.Context, queue func(*pgx.Batch)) error {
	own := &pgx.Batch{}
	queue(own)
	batch, err := o.ready(ctx, own)
	if err != nil {
		return err
	}
	return o.flush(ctx, batch)
}

func (o *Opened) flush(ctx context.Context, batch *pgx.Batch) error {
	err := o.Tx.SendBatch(ctx, batch).Close()
	conns.LeaveStandby(o, err)
	if endedText(err) {
		return endedByText(err)
	}
	if pawl.CodeOf(err) == "0A000" { // the result type of a prepared function has changed
		o.sessionChanged = true
	}
	return o.refused(err)
}

// endedText reports whether err means that this is not the transaction in which a savepoint was set
// or a job was opened.
func endedText(err error) bool {
	switch pawl.CodeOf(err) {
	// no such savepoint; no transaction; not the transaction that job_open began
	case "3B001", "25P01", "25000":
		return true
	}
	return false
}
