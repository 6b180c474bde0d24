package txn

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
)

// bare knows whether user code was given the connection itself, of a transaction that was lent without a savepoint. An aborted transaction
// answers nothing but whether it still has a savepoint, so one is set before the connection is given: without it nothing would tell an error
// in the transaction from an error in another one, behind rows that are durable.
type bare struct {
	wanted bool // the transaction is lent without a savepoint

	mu       sync.Mutex
	marked   bool // the savepoint was set
	doubtful bool // it could not be set, and the connection was given
}

// markLimit bounds the message that sets the savepoint.
const markLimit = 5 * time.Second

// Conn gives the connection itself, which nothing guards. See bare.
func (l *lent) Conn() *pgx.Conn {
	l.connExposed.Store(true)
	conn := l.Tx.Conn()
	if l.bare.wanted && l.tenure.enter() == nil {
		l.bare.give(conn)
		l.leave()
	}
	return conn
}

// replace is sent in an aborted transaction, of which nothing can be kept: another one takes its place, aborted as well, that has the savepoint.
var replace = "rollback; begin; " + setSavepoint + "; do $$ begin raise in_failed_sql_transaction; end $$"

// give sets the savepoint, before the connection is given for the first time.
func (b *bare) give(conn *pgx.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := conn.PgConn()
	if b.marked || b.doubtful || c.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), markLimit)
	defer cancel()
	switch status := c.TxStatus(); {
	case c.IsBusy():
	case status == 'T':
		_, err := c.Exec(ctx, setSavepoint).ReadAll()
		b.marked = err == nil
	case status == 'E':
		_, err := c.Exec(ctx, replace).ReadAll()
		b.marked = pawl.CodeOf(err) == verdict.FailedTransaction
	}
	b.doubtful = !b.marked
}

// mayBeReplaced reports whether an aborted transaction may be another one than that which was lent. It also may if the savepoint was set inside one of
// user code, which has ended.
func (b *bare) mayBeReplaced(ctx context.Context, conn *pgx.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.marked {
		return b.doubtful
	}
	_, err := conn.PgConn().Exec(ctx, returnSavepoint).ReadAll()
	return endedText(err)
}
