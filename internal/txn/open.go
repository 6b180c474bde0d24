package txn

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
)

// An Opened is a transaction that has claimed and stands behind a savepoint. It needs four round trips and those of the
// user's statements: BEGIN with the claim and the savepoint; the savepoint's end with what records success; COMMIT; and,
// if the user's code failed, the way back to the savepoint.
type Opened struct {
	pgx.Tx
	passed bool // user code has succeeded behind the savepoint, which is still to be released
}

// Open begins a transaction, sends what claim queues, and sets a savepoint: one message, one round trip. Nothing of the
// user's travels with it: a claim that answers by a row stops nothing that was sent behind it. The server ends the
// transaction by itself once nothing was heard in it for idle; see [Begin].
func Open(ctx context.Context, pool *pgxpool.Pool, op string, level pgx.TxIsoLevel, idle time.Duration, claim func(*pgx.Batch)) (*Opened, error) {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: level})
	batch.Queue("select set_config('idle_in_transaction_session_timeout', $1, true)", milliseconds(idle))
	claim(batch)
	batch.Queue(setSavepoint)
	results := pool.SendBatch(ctx, batch)
	if err := results.Close(); err != nil {
		if tx := results.Tx(); tx != nil {
			Rollback(ctx, tx)
		}
		return nil, pawl.Wrap(op, err)
	}
	return &Opened{Tx: results.Tx()}, nil
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(min(d.Milliseconds(), math.MaxInt32), 10)
}

// Guard runs user code behind the savepoint; see the function [Guard]. It may be called again: what succeeded before is kept.
func (o *Opened) Guard(ctx context.Context, limit time.Duration, fn func(context.Context, pgx.Tx) error) error {
	if o.passed {
		if err := o.send(ctx, func(b *pgx.Batch) { b.Queue(setSavepoint) }); err != nil {
			return errors.Join(ErrLost, err)
		}
	}
	s := &savepoint{Tx: o.Tx}
	return behind(ctx, o.Tx, s, limit, fn, func() (err error) {
		o.passed, err = s.pass(ctx)
		return err
	})
}

// Last sends what last queues, to be followed by [Commit].
func (o *Opened) Last(ctx context.Context, op string, last func(*pgx.Batch)) error {
	return pawl.Wrap(op, o.send(ctx, last))
}

// send sends what queue queues, behind the release of a savepoint that user code has passed.
func (o *Opened) send(ctx context.Context, queue func(*pgx.Batch)) error {
	batch := &pgx.Batch{}
	if o.passed {
		batch.Queue(releaseSavepoint)
	}
	queue(batch)
	if batch.Len() == 0 {
		return nil
	}
	o.passed = false
	err := o.SendBatch(ctx, batch).Close()
	if pawl.CodeOf(err) == noSavepoint {
		return endedByText(err)
	}
	return err
}

const noSavepoint = "3B001" // it was there: the transaction is another one
