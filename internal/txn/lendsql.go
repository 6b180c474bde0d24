package txn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
)

// pooledConn is a pool connection that is held for one transaction.
type pooledConn interface {
	Conn() *pgx.Conn
	Release()
}

// withDriver is an acquired connection below pgx's driver for database/sql.
type withDriver struct{ driver *stdlib.Conn }

func (c withDriver) Conn() *pgx.Conn { return c.driver.Conn() }

// returns it to the pool, as pgxpool's Release does
func (c withDriver) Release() { _ = c.driver.Close() }

// acquire takes a connection from the pool. pgx's connector must acquire a connection itself to put
// its database/sql driver around it. That costs some microseconds (BenchmarkLendSQL), so only an
// Opener with SQL pays it.
func (o Opener) acquire(ctx context.Context) (pooledConn, error) {
	if !o.SQL {
		conn, err := o.Pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
	conn, err := stdlib.GetPoolConnector(o.Pool).Connect(ctx)
	if err != nil {
		return nil, err
	}
	return withDriver{conn.(*stdlib.Conn)}, nil
}

var _ pooledConn = (*pgxpool.Conn)(nil)

var errNoDriver = errors.New("the transaction was not opened for database/sql")

// LendSQL runs fn with a *sql.Tx on the transaction tx. tx must be one that a handler was lent by
// an [Opener] with SQL. When fn returns, rows and statements of the *sql.Tx are closed, and nothing
// can be sent through it any more. Its COMMIT and ROLLBACK send nothing, like those of tx.
//
// The error is [ErrLost], and tx is lost as well, if a statement of fn still runs when fn returns.
// The same holds if rows that fn left open cannot be closed by the end of ctx and [releaseGrace]
// more.
func LendSQL(ctx context.Context, tx pgx.Tx, fn func(*sql.Tx) error) (err error) {
	l, is := tx.(*lent)
	if !is || l.driver == nil {
		return errNoDriver
	}
	// of a nested transaction too: fn may not commit it either
	g := &lending{lent: &lent{Tx: l.Tx, tenure: l.tenure, driver: l.driver}}
	db := sql.OpenDB(connector{g})
	// with ctx, database/sql would roll back by itself when ctx ends
	x, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		_ = db.Close()
		return err
	}
	lendings.Store(x, l)
	release := func() { // closes rows and statements; sends nothing else
		_ = x.Rollback()
		_ = db.Close()
	}
	defer func() { // also if fn panics or exits its goroutine
		lendings.Delete(x)
		g.over.Store(true)
		if !l.using.TryLock() {
			l.strand(func() { within(gone, release); g.shut() })
			err = errors.Join(ErrLost, errRunning, err)
			return
		}
		l.using.Unlock()
		if !within(ctx, release) {
			l.strand(g.shut)
			err = errors.Join(ErrLost, errRowsLeft, err)
			return
		}
		g.shut()
	}()
	return fn(x)
}

var errRowsLeft = errors.New("the handler left rows open, and they could not be closed in time: close them")

// releaseGrace is how long rows and statements that a handler left open may take to close after the
// handler's deadline.
const releaseGrace = time.Second

// gone is a context that has already ended.
var gone, _ = context.WithDeadline(context.Background(), time.Time{})

// within runs fn and reports whether it ended by the end of ctx or within [releaseGrace] after it.
// Rows may have much data to read before they close. database/sql also waits without a limit while
// a goroutine scans, or holds raw bytes.
func within(ctx context.Context, fn func()) bool {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fn()
	}()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return true
	case <-time.After(releaseGrace):
		return false
	}
}

// lendings maps each *sql.Tx that is lent now to its transaction.
var lendings sync.Map

// Beneath returns the transaction under a lent *sql.Tx, or nil if x is not lent now.
func Beneath(x *sql.Tx) pgx.Tx {
	if l, is := lentAs(x); is {
		return l
	}
	return nil
}

func lentAs(x *sql.Tx) (*lent, bool) {
	l, is := lendings.Load(x)
	if !is {
		return nil, false
	}
	return l.(*lent), true
}

// lentOf returns the transaction of db, if a handler was lent it as pgx.Tx or as *sql.Tx.
func lentOf(db pawl.DB) (*lent, bool) {
	switch db := db.(type) {
	case *lent:
		return db, true
	case interface{ Handle() pawl.Queryer }:
		if x, is := db.Handle().(*sql.Tx); is {
			return lentAs(x)
		}
	}
	return nil, false
}

// A lending is the connection behind one *sql.Tx. Its statements pass the same checks as those of
// the lent transaction, and go on to pgx's driver.
type lending struct {
	*lent
	over atomic.Bool // fn has returned: nothing more is sent
	// nothing may be closed either: the connection may belong to another transaction
	closed atomic.Bool
}

// connector connects one *sql.DB to one lending.
type connector struct{ g *lending }

func (c connector) Connect(context.Context) (driver.Conn, error) { return lentConn(c), nil }
func (c connector) Driver() driver.Driver                        { return stdlib.GetDefaultDriver() }

var errOpenRows = errors.New("the rows of an earlier statement of this transaction are open: close them before the next one")

// enter does what [lent.enter] does, and also fails after the lending is over. If it returns nil,
// the caller must call leave.
func (g *lending) enter(query string) error {
	switch err := g.lent.enter(query); {
	case errors.Is(err, ErrEnded):
		return err
	case err != nil:
		return sql.ErrTxDone
	case g.over.Load():
		g.leave()
		return sql.ErrTxDone
	case !g.driver.Conn().IsClosed() && g.driver.Conn().PgConn().IsBusy():
		g.leave()
		return errOpenRows
	}
	return nil
}

// closing runs free, which closes something on the connection, unless shut was called.
func (g *lending) closing(free func() error) error {
	g.using.RLock()
	defer g.using.RUnlock()
	if g.closed.Load() {
		return nil
	}
	return free()
}

// shut stops later Close calls from reaching the connection.
func (g *lending) shut() {
	g.using.Lock()
	g.closed.Store(true)
	g.using.Unlock()
}

// lentConn implements driver.Conn for a lending.
type lentConn struct{ g *lending }

func (c lentConn) Close() error              { return nil } // the transaction owns the connection
func (c lentConn) Begin() (driver.Tx, error) { return lentTx(c), nil }

// BeginTx sends nothing: the transaction is open.
func (c lentConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return lentTx(c), nil
}

func (c lentConn) CheckNamedValue(v *driver.NamedValue) error { return c.g.driver.CheckNamedValue(v) }

func (c lentConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.g.enter(query); err != nil {
		return nil, err
	}
	defer c.g.leave()
	defer c.g.forget(ctx)
	return c.g.driver.ExecContext(ctx, query, args)
}

func (c lentConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.g.enter(query); err != nil {
		return nil, err
	}
	defer c.g.leave()
	return c.g.rows(c.g.driver.QueryContext(ctx, query, args))
}

func (c lentConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c lentConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.g.enter(query); err != nil {
		return nil, err
	}
	defer c.g.leave()
	s, err := c.g.driver.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &lentStmt{s.(*stdlib.Stmt), c.g, query}, nil
}

// lentTx implements driver.Tx. It does not end the transaction.
type lentTx struct{ g *lending }

// OnPgx marks the connection as one whose errors and arguments are pgx's; see package sqldriver.
func (lentTx) OnPgx() {}

func (t lentTx) Commit() error { return t.g.lent.Commit(context.Background()) }

// Rollback does nothing after the lending is over: then database/sql itself calls it, from release.
func (t lentTx) Rollback() error {
	if t.g.over.Load() {
		return nil
	}
	return t.g.lent.Rollback(context.Background())
}

// lentStmt is a prepared statement of a lending.
type lentStmt struct {
	*stdlib.Stmt
	g     *lending
	query string
}

func (s *lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.g.enter(s.query); err != nil {
		return nil, err
	}
	defer s.g.leave()
	return s.Stmt.ExecContext(ctx, args)
}

func (s *lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.g.enter(s.query); err != nil {
		return nil, err
	}
	defer s.g.leave()
	return s.g.rows(s.Stmt.QueryContext(ctx, args))
}

func (s *lentStmt) Close() error { return s.g.closing(s.Stmt.Close) }

// lentRows are rows of a lending. They embed pgx's rows to keep their optional column methods.
type lentRows struct {
	*stdlib.Rows
	g *lending
}

func (g *lending) rows(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	return &lentRows{rows.(*stdlib.Rows), g}, nil
}

func (r *lentRows) Next(dest []driver.Value) error {
	r.g.using.RLock()
	defer r.g.using.RUnlock()
	if r.g.over.Load() || r.g.tenure.over.Load() {
		return sql.ErrTxDone
	}
	return r.Rows.Next(dest)
}

func (r *lentRows) Close() error { return r.g.closing(r.Rows.Close) }
