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

// lent is the transaction, or one nested in it, as a handler gets it. When the handler has returned, its tenure is over and
// nothing can be sent through any of them: a goroutine that was left behind does not reach the transaction, nor the one that has
// the connection next. A text that would end the transaction is refused before it is sent. Conn gives the connection itself, which nothing
// guards.
type lent struct {
	pgx.Tx
	*tenure
	nested bool
	driver *stdlib.Conn // of database/sql on the same connection; nil if the transaction was not opened for it
}

// A tenure is the time for which a handler has a transaction.
type tenure struct {
	conn           *pgconn.PgConn
	over           atomic.Bool
	triedToEnd     atomic.Bool  // the handler called Commit or Rollback, or said so by text; nothing was sent
	using          sync.RWMutex // read-locked while a statement is sent
	connExposed    atomic.Bool  // the handler may have the connection itself; see Unbroken
	changesSession atomic.Bool  // a statement may change the session beyond the transaction
	dropsPrepared  atomic.Bool  // a statement has dropped what pgx has prepared

	stranded atomic.Pointer[func()] // a *sql.Tx could not be ended, since a statement ran or rows stayed open: what ends it then

	bare bare

	mu    sync.Mutex
	after []func(pawl.DB)
}

func lend(tx pgx.Tx, driver *stdlib.Conn) *lent {
	return &lent{Tx: tx, tenure: &tenure{conn: tx.Conn().PgConn()}, driver: driver}
}

// strand notes that a statement of a *sql.Tx runs on, or that its rows cannot be closed. The tenure is over with that.
func (t *tenure) strand(end func()) {
	t.over.Store(true)
	t.stranded.Store(&end)
}

// AfterCommit has fn called, with the pool, when the transaction of db has committed, if it is one that a handler was lent;
// else it reports false. fn must not block. It is not called if what the handler did was rolled back, nor, though that may have
// committed, if the reply to COMMIT was lost: it is for hints.
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

// Same reports whether db is the transaction a, or nested in it: both as a handler was lent them.
func Same(a, db pawl.DB) bool {
	x, one := lentOf(a)
	y, other := lentOf(db)
	return one && other && x.tenure == y.tenure
}

// taken returns what AfterCommit was told.
func (t *tenure) taken() []func(pawl.DB) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.after
}

// end ends the tenure. It returns why the handler's success cannot be believed.
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

// sever ends a statement that still runs after the tenure, and returns when it has ended. pgx forbids two goroutines in one connection,
// and panics if it meets them: so the server is asked on another one, and the socket is closed under the statement.
func (t *tenure) sever(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), severLimit)
	defer cancel()
	_ = conn.CancelRequest(ctx)
	_ = conn.Conn().Close()
	t.using.Lock() // had when the statement has ended
	end := t.stranded.Load()
	t.using.Unlock()
	if end != nil {
		(*end)()
	}
}

// severLimit bounds the request to cancel a statement.
const severLimit = 2 * time.Second

// enter is called before statements are sent. If it returns nil, leave follows.
func (t *tenure) enter(queries ...string) error {
	t.using.RLock()
	if t.over.Load() || t.triedToEnd.Load() {
		t.using.RUnlock()
		return pgx.ErrTxClosed
	}
	if !legible(t.conn) {
		t.connExposed.Store(true) // a text may hide a COMMIT, behind which the settings are as before
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
			t.triedToEnd.Store(true) // as by Commit and Rollback: what the handler believes now is not so
			return fmt.Errorf("%w: %s was not sent; return nil to commit, or an error to roll back", ErrEnded, ends)
		}
	}
	return nil
}

func (t *tenure) leave() { t.using.RUnlock() }

// Commit and Rollback end a nested transaction. The one that was lent is not the handler's to end: nothing is sent.
func (l *lent) Commit(ctx context.Context) error {
	if !l.nested && l.tenure.enter() == nil {
		l.leave()
		l.triedToEnd.Store(true)
		return ErrEnded
	}
	return l.finish(ctx, l.Tx.Commit)
}

// Rollback: see Commit.
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

// enter also refuses once the handler has ended the transaction through the connection: what is sent then would be durable by itself.
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

// forget has pgx forget what the server has dropped. It is called once the statement that did was sent.
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

// watchedRows notice that their connection is asked for.
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
	l.connExposed.Store(true) // by the rows of its answers, and what reads them
	return l.Tx.SendBatch(ctx, b)
}

func (l *lent) Prepare(ctx context.Context, name, query string) (*pgconn.StatementDescription, error) {
	if err := l.enter(query); err != nil {
		return nil, err
	}
	defer l.leave()
	return l.Tx.Prepare(ctx, name, query)
}

// refused answers what is not sent.
func refused(err error) pgx.BatchResults { return pgx.FailedBatchResults(&pgx.Batch{}, err) }
