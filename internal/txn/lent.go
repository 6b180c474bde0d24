package txn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
)

// lent is the transaction as a handler gets it, or one nested in it. When the handler has returned,
// its tenure is over and nothing can be sent through any of them. So a goroutine that the handler
// left behind reaches neither this transaction nor the next one on the connection. Statements that
// would end the transaction are refused before they are sent. Conn returns the connection itself,
// which is unguarded.
type lent struct {
	pgx.Tx
	*tenure
	nested bool
	driver *stdlib.Conn // of database/sql on the same connection; nil if the Opener has no SQL
}

// A tenure is the time for which a handler has a transaction.
type tenure struct {
	conn *pgconn.PgConn
	over atomic.Bool
	// the handler called Commit or Rollback, or sent such a statement; it was not sent
	triedToEnd     atomic.Bool
	using          sync.RWMutex // read-locked while a statement is sent
	connExposed    atomic.Bool  // the handler may have the connection itself; see Unbroken
	changesSession atomic.Bool  // a statement may change the session beyond the transaction
	dropsPrepared  atomic.Bool  // a statement dropped pgx's prepared statements

	// closes a *sql.Tx that could not be closed because a statement ran or rows stayed open
	stranded atomic.Pointer[func()]

	bare bare

	mu    sync.Mutex
	after []func(pawl.DB)
}

func lend(tx pgx.Tx, driver *stdlib.Conn) *lent {
	return &lent{Tx: tx, tenure: &tenure{conn: tx.Conn().PgConn()}, driver: driver}
}

// strand records that a statement of a *sql.Tx still runs, or that its rows cannot be closed. It
// ends the tenure. [tenure.sever] calls end later.
func (t *tenure) strand(end func()) {
	t.over.Store(true)
	t.stranded.Store(&end)
}

// AfterCommit registers fn, which is called with the pool after the transaction of db has
// committed. It returns false if db is no transaction that a handler was lent. fn must not block.
// fn is not called if the handler's work was rolled back. It is also not called if the reply to
// COMMIT was lost, although the transaction may have committed. Use it for hints only.
func AfterCommit(db pawl.DB, fn func(pool pawl.DB)) bool {
	l, ok := lentOf(db)
	if !ok {
		return false
	}
	l.mu.Lock()
	l.after = append(l.after, fn)
	l.mu.Unlock()
	return true
}

// Same reports whether a and db are the same lent transaction, or nested in the same one.
func Same(a, db pawl.DB) bool {
	x, one := lentOf(a)
	y, other := lentOf(db)
	return one && other && x.tenure == y.tenure
}

// taken returns the functions that AfterCommit registered.
func (t *tenure) taken() []func(pawl.DB) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.after
}

// end ends the tenure. If the handler's success cannot be trusted, it returns the reason.
func (t *tenure) end() error {
	t.over.Store(true)
	switch {
	case t.triedToEnd.Load():
		return errors.Join(ErrLost, ErrEnded)
	case t.stranded.Load() != nil, !t.using.TryLock():
		return errors.Join(ErrLost, errRunning)
	}
	t.using.Unlock()
	return nil
}

var errRunning = errors.New("the handler returned while a statement of its own was running")

// sever ends a statement that still runs after the tenure, and returns when it has ended. pgx
// panics if two goroutines use one connection. So sever sends a cancel request on another
// connection, and closes the socket under the statement.
func (t *tenure) sever(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), severLimit)
	defer cancel()
	_ = conn.CancelRequest(ctx)
	_ = conn.Conn().Close()
	t.using.Lock() // acquired when the statement has ended
	end := t.stranded.Load()
	t.using.Unlock()
	if end != nil {
		(*end)()
	}
}

// severLimit bounds the cancel request.
const severLimit = 2 * time.Second

// enter must be called before statements are sent. If it returns nil, the caller must call leave.
func (t *tenure) enter(queries ...string) error {
	t.using.RLock()
	if t.over.Load() || t.triedToEnd.Load() {
		t.using.RUnlock()
		return pgx.ErrTxClosed
	}
	if !legible(t.conn) {
		// a text may hide a COMMIT, and the settings may be as before afterwards
		t.connExposed.Store(true)
	}
	for _, query := range queries {
		changes, drops, ends := look(query)
		if changes || drops {
			t.changesSession.Store(true)
		}
		if drops {
			t.dropsPrepared.Store(true)
		}
		if ends != "" {
			t.using.RUnlock()
			// as by Commit and Rollback: the handler takes the transaction for ended
			t.triedToEnd.Store(true)
			return fmt.Errorf("%w: %s was not sent; return nil to commit, or an error to roll back", ErrEnded, ends)
		}
	}
	return nil
}

func (t *tenure) leave() { t.using.RUnlock() }

// Commit commits a nested transaction. The handler may not end the transaction it was lent, so
// there it sends nothing and returns [ErrEnded].
func (l *lent) Commit(ctx context.Context) error {
	if !l.nested && l.tenure.enter() == nil {
		l.leave()
		l.triedToEnd.Store(true)
		return ErrEnded
	}
	return l.finish(ctx, l.Tx.Commit)
}

// Rollback rolls a nested transaction back. On the transaction that was lent it sends nothing.
func (l *lent) Rollback(ctx context.Context) error {
	if !l.nested && l.tenure.enter() == nil {
		l.leave()
		l.triedToEnd.Store(true)
		return nil
	}
	return l.finish(ctx, l.Tx.Rollback)
}

func (l *lent) finish(ctx context.Context, how func(context.Context) error) error {
	if !l.nested {
		return pgx.ErrTxClosed
	}
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	return how(ctx)
}

func (l *lent) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	tx, err := l.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &lent{Tx: tx, tenure: l.tenure, nested: true, driver: l.driver}, nil
}

// enter also fails if the handler has ended the transaction through the connection. A statement
// sent then would be durable by itself.
func (l *lent) enter(queries ...string) error {
	if err := l.tenure.enter(queries...); err != nil {
		return err
	}
	if conn := l.Tx.Conn().PgConn(); !conn.IsClosed() && !conn.IsBusy() && conn.TxStatus() == 'I' {
		l.leave()
		return pgx.ErrTxClosed
	}
	return nil
}

// forget makes pgx forget prepared statements that a handler's statement has dropped on the server.
// Call it after that statement was sent.
func (l *lent) forget(ctx context.Context) {
	conn := l.Tx.Conn()
	if !l.dropsPrepared.Load() || conn.IsClosed() || conn.PgConn().IsBusy() {
		return
	}
	l.dropsPrepared.Store(false)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markLimit)
	defer cancel()
	_ = conn.DeallocateAll(ctx)
	delete(conn.PgConn().CustomData(), plansKey)
}

func (l *lent) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	if err := l.enter(query); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer l.leave()
	defer l.forget(ctx)
	return l.Tx.Exec(ctx, query, args...)
}

func (l *lent) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	if err := l.enter(query); err != nil {
		return refused(err).Query()
	}
	defer l.leave()
	rows, err := l.Tx.Query(ctx, query, args...)
	return watchedRows{rows, l.tenure}, err
}

// watchedRows record that user code asked them for their connection.
type watchedRows struct {
	pgx.Rows
	of *tenure
}

func (r watchedRows) Conn() *pgx.Conn {
	r.of.connExposed.Store(true)
	return r.Rows.Conn()
}

func (l *lent) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	if err := l.enter(query); err != nil {
		return refused(err).QueryRow()
	}
	defer l.leave()
	return l.Tx.QueryRow(ctx, query, args...)
}

func (l *lent) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := l.enter(); err != nil {
		return 0, err
	}
	defer l.leave()
	return l.Tx.CopyFrom(ctx, table, columns, rows)
}

func (l *lent) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	queries := make([]string, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		queries[i] = q.SQL
	}
	if err := l.enter(queries...); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer l.leave()
	// its rows, and functions that read them, give access to the connection
	l.connExposed.Store(true)
	return l.Tx.SendBatch(ctx, b)
}

func (l *lent) Prepare(ctx context.Context, name, query string) (*pgconn.StatementDescription, error) {
	if err := l.enter(query); err != nil {
		return nil, err
	}
	defer l.leave()
	return l.Tx.Prepare(ctx, name, query)
}

// refused returns results that all fail with err.
func refused(err error) pgx.BatchResults { return pgx.FailedBatchResults(&pgx.Batch{}, err) }
