package txn

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
)

// An Opened is a transaction that has claimed and stands behind a savepoint.
type Opened struct {
	pgx.Tx
}

// Open begins a transaction, sends the claim, a statement that answers one row, and sets a savepoint: one message, one
// round trip. Nothing of the user's travels with it: a claim that answers by a row stops nothing that was sent behind it.
// The server ends the transaction by itself once nothing was heard in it for idle; see [Begin].
func Open(ctx context.Context, pool *pgxpool.Pool, op string, level pgx.TxIsoLevel, idle time.Duration,
	claim string, args []any, scan func(pgx.Row) error) (*Opened, error) {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: level})
	batch.Queue("select set_config('idle_in_transaction_session_timeout', $1, true)", milliseconds(idle))
	batch.Queue(claim, args...).QueryRow(scan)
	batch.Queue("savepoint " + savepointName)
	results := pool.SendBatch(ctx, batch)
	if err := results.Close(); err != nil {
		if tx := results.Tx(); tx != nil {
			Rollback(ctx, tx)
		}
		return nil, pawl.Wrap(op, err)
	}
	return &Opened{results.Tx()}, nil
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(min(d.Milliseconds(), math.MaxInt32), 10)
}

// Guard runs user code behind the savepoint; see the function [Guard].
func (o *Opened) Guard(ctx context.Context, limit time.Duration, fn func(context.Context, pgx.Tx) error) error {
	return behind(ctx, o.Tx, &savepoint{Tx: o.Tx}, limit, fn)
}

const savepointName = "pawl"

// A savepoint is a transaction within one, as pgx makes them, whose SAVEPOINT was sent by somebody else.
type savepoint struct {
	pgx.Tx
	closed bool
}

func (s *savepoint) Commit(ctx context.Context) error { return s.end(ctx, "release savepoint ") }

func (s *savepoint) Rollback(ctx context.Context) error { return s.end(ctx, "rollback to savepoint ") }

func (s *savepoint) end(ctx context.Context, how string) error {
	if s.closed {
		return pgx.ErrTxClosed
	}
	_, err := s.Exec(ctx, how+savepointName)
	s.closed = err == nil || s.Conn().IsClosed()
	return err
}
