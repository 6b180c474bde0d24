package txn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
)

const (
	setSavepoint     = "savepoint pawl"
	releaseSavepoint = "release savepoint pawl"
	returnSavepoint  = "rollback to savepoint pawl"
)

// A savepoint is a transaction within one, as pgx makes them, whose SAVEPOINT was sent by somebody else. Once it has ended,
// nothing can be sent through it: user code that goes on behind our back does not reach the transaction.
type savepoint struct {
	pgx.Tx
	closed atomic.Bool

	mu    sync.Mutex
	after []func(pawl.DB)
}

// AfterCommit has fn called, with the pool, when the transaction of db has committed, if it is one that a handler was lent;
// else it reports false. fn must not block. It is not called if what the handler did was rolled back, nor, though that may have
// committed, if the reply to COMMIT was lost: it is for hints.
func AfterCommit(db pawl.DB, fn func(pool pawl.DB)) bool {
	s, lent := db.(*savepoint)
	if lent {
		s.mu.Lock()
		s.after = append(s.after, fn)
		s.mu.Unlock()
	}
	return lent
}

// taken returns what AfterCommit was told.
func (s *savepoint) taken() []func(pawl.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after
}

// pass ends the savepoint after user code has succeeded. As a rule nothing is sent, and the release is owed. If anything
// looks odd the release is sent, and its error says what.
func (s *savepoint) pass(ctx context.Context) (owed bool, err error) {
	if s.closed.Load() {
		return false, errors.Join(ErrLost, ErrEnded)
	}
	if conn := s.Tx.Conn().PgConn(); conn.IsClosed() || conn.IsBusy() || conn.TxStatus() != 'T' {
		return false, s.Commit(ctx)
	}
	s.closed.Store(true)
	return true, nil
}

func (s *savepoint) Commit(ctx context.Context) error   { return s.end(ctx, releaseSavepoint) }
func (s *savepoint) Rollback(ctx context.Context) error { return s.end(ctx, returnSavepoint) }

func (s *savepoint) end(ctx context.Context, how string) error {
	if s.closed.Load() {
		return pgx.ErrTxClosed
	}
	_, err := s.Tx.Exec(ctx, how)
	s.closed.Store(err == nil || s.Tx.Conn().IsClosed())
	return err
}

func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) {
	if s.closed.Load() {
		return nil, pgx.ErrTxClosed
	}
	return s.Tx.Begin(ctx)
}

func (s *savepoint) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	if s.closed.Load() {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return s.Tx.Exec(ctx, query, args...)
}

func (s *savepoint) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	if s.closed.Load() {
		return refused.Query()
	}
	return s.Tx.Query(ctx, query, args...)
}

func (s *savepoint) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	if s.closed.Load() {
		return refused.QueryRow()
	}
	return s.Tx.QueryRow(ctx, query, args...)
}

func (s *savepoint) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if s.closed.Load() {
		return 0, pgx.ErrTxClosed
	}
	return s.Tx.CopyFrom(ctx, table, columns, rows)
}

func (s *savepoint) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if s.closed.Load() {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return s.Tx.SendBatch(ctx, b)
}

func (s *savepoint) Prepare(ctx context.Context, name, query string) (*pgconn.StatementDescription, error) {
	if s.closed.Load() {
		return nil, pgx.ErrTxClosed
	}
	return s.Tx.Prepare(ctx, name, query)
}

// refused answers what is asked of a savepoint that has ended.
var refused = pgx.FailedBatchResults(&pgx.Batch{}, pgx.ErrTxClosed)
