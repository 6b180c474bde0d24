package dashboard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
)

// A reader reads for pages, in read-only transactions. The server ends their statements after
// readTimeout. At most maxReads reads run at once. If the browser leaves, its read is cancelled.
type reader struct {
	pool  *pgxpool.Pool
	slots chan struct{}
}

// errSlow is shown if a statement took longer than readTimeout, or several took twice as long.
// errBusy is shown if a read could not begin in that time.
var (
	errSlow = errors.New("this took too long and was stopped: narrow the selection")
	errBusy = errors.New("there was no connection to the database in time: too many pages are read at once, or it does not answer; try again")
)

// read runs ask in a read-only transaction.
func read[T any](ctx context.Context, r reader, ask func(context.Context, pawl.DB) (T, error)) (result T, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout) // for slot, connection and result
	defer cancel()
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return result, errBusy
	}
	tx, err := r.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if errors.Is(err, context.DeadlineExceeded) {
		return result, errBusy
	}
	if err != nil {
		return result, pawl.Wrap("dashboard.read", err)
	}
	defer func() {
		// The slot stays taken until the connection is free again.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*readTimeout)
		defer cancel()
		_ = tx.Rollback(late)
	}()
	if _, err = tx.Exec(ctx, fmt.Sprintf("set local statement_timeout = %d", readTimeout/time.Millisecond)); err != nil {
		err = pawl.Wrap("dashboard.read", err)
	} else {
		result, err = ask(ctx, tx)
	}
	if pawl.CodeOf(err) == "57014" || errors.Is(err, context.DeadlineExceeded) {
		err = errSlow
	}
	return result, err
}
