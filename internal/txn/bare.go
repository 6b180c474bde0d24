package txn

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
)

// bare guards a transaction that was lent without a savepoint when user code asks for the
// connection itself. An aborted transaction answers only whether it has a savepoint, so bare sets
// one first. Without it, an error in the lent transaction could not be distinguished from an error
// in a later one that follows a COMMIT by user code.
type bare struct {
	wanted bool // the transaction is lent without a savepoint

	mu       sync.Mutex
	marked   bool // the savepoint was set
	doubtful bool // the savepoint could not be set, and user code has the connection
}

// markLimit bounds the message that sets the savepoint.
const markLimit = 5 * time.Second

// Conn returns the unguarded connection; see bare.
func (l *lent) Conn() *pgx.Conn {
	l.connExposed.Store(true)
	conn := l.Tx.Conn()
	if l.bare.wanted && l.tenure.enter() == nil {
		l.bare.give(conn)
		l.leave()
	}
	return conn
}

// replace is sent in an aborted transaction, of which nothing can be kept. It starts another
// transaction that has the savepoint, and aborts that one too.
var replace = "rollback; begin; " + setSavepoint + "; do $$ begin raise in_failed_sql_transaction; end $$"

// give sets the savepoint before user code gets the connection for the first time.
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

// mayBeReplaced reports whether an aborted transaction may differ from the one that was lent. It
// also returns true if the savepoint was set inside a nested transaction of user code that has
// ended.
func (b *bare) mayBeReplaced(ctx context.Context, conn *pgx.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.marked {
		return b.doubtful
	}
	_, err := conn.PgConn().Exec(ctx, returnSavepoint).ReadAll()
	return endedText(err)
}
