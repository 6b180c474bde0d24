package txn

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
)

// An Opened is a transaction that has claimed and stands behind a savepoint. It costs two round trips beside those of the
// user's statements: BEGIN with the claim and the savepoint; then the savepoint's end, what records success, and COMMIT.
type Opened struct {
	pgx.Tx
	conn   *pgxpool.Conn
	passed bool // user code has succeeded behind the savepoint, which is still to be released
	ended  bool
	commit atomic.Int32 // open, answered or left
	pool   *pgxpool.Pool
	after  []func(pawl.DB) // see AfterCommit
}

// Open begins a transaction, sends what claim queues, and sets a savepoint: one message, one round trip. Nothing of the
// user's travels with it: a claim that answers by a row stops nothing that was sent behind it. The server ends the
// transaction by itself once nothing was heard in it for idle; see [Begin].
func Open(ctx context.Context, pool *pgxpool.Pool, op string, level pgx.TxIsoLevel, idle time.Duration, claim func(*pgx.Batch)) (*Opened, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, pawl.Wrap(op, err)
	}
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: level})
	batch.Queue(endWhenSilent(idle))
	claim(batch)
	batch.Queue(setSavepoint)
	results := conn.SendBatch(ctx, batch)
	o := &Opened{Tx: results.Tx(), conn: conn, pool: pool}
	if err := results.Close(); err != nil {
		Rollback(ctx, o)
		LeaveStandby(pool, err)
		return nil, pawl.Wrap(op, err)
	}
	return o, nil
}

// LeaveStandby empties a pool whose connection refused a write because it is read-only, as those to a standby are: after a failover
// they would stay for their whole life. The next ones find the primary.
func LeaveStandby(pool *pgxpool.Pool, err error) {
	if pawl.CodeOf(err) == "25006" {
		pool.Reset()
	}
}

// Guard runs user code behind the savepoint; see the function [Guard]. It may be called again: what succeeded before is kept.
func (o *Opened) Guard(ctx context.Context, limit time.Duration, fn func(context.Context, pgx.Tx) error) error {
	if o.passed {
		if err := o.send(ctx, func(b *pgx.Batch) { b.Queue(setSavepoint) }); err != nil {
			return errors.Join(ErrLost, err)
		}
	}
	s := &savepoint{Tx: o.Tx}
	err := behind(ctx, o.Tx, s, limit, fn, func() (err error) {
		o.passed, err = s.pass(ctx)
		return err
	})
	if err == nil {
		o.after = append(o.after, s.taken()...)
	}
	return err
}

// CommitWith sends what last queues and COMMIT behind it, in one message: the server stops at the first that fails. Nothing
// is sent if ctx has ended; after that its end cuts nothing short. Errors are those of the function [Commit].
func (o *Opened) CommitWith(ctx context.Context, op string, last func(*pgx.Batch)) error {
	if err := ctx.Err(); err != nil {
		return pawl.Wrap(op, err)
	}
	batch := o.behind(func(b *pgx.Batch) {
		last(b)
		b.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
			if tag.String() == "ROLLBACK" {
				return pgx.ErrTxCommitRollback
			}
			return nil
		})
	})
	err := patiently(ctx, op, o.Conn(), func(ctx context.Context) error {
		err := o.flush(ctx, batch)
		if !o.commit.CompareAndSwap(open, answered) {
			o.conn.Release()
		}
		return err
	}, o.leave)
	if err == nil {
		o.release()
		for _, fn := range o.after {
			fn(o.pool)
		}
	}
	return err
}

// What became of a COMMIT: not answered yet, answered, or left behind by whoever sent it.
const (
	open int32 = iota
	answered
	left
)

// leave gives the connection to the COMMIT that is on its way, unless it was answered this moment.
func (o *Opened) leave() bool {
	o.ended = o.commit.CompareAndSwap(open, left)
	return o.ended
}

// Commit is CommitWith nothing more.
func (o *Opened) Commit(ctx context.Context) error {
	return o.CommitWith(ctx, "commit", func(*pgx.Batch) {})
}

// Rollback ends the transaction if it has not ended.
func (o *Opened) Rollback(ctx context.Context) error {
	if o.ended {
		return pgx.ErrTxClosed
	}
	defer o.release()
	return o.Tx.Rollback(ctx)
}

// release gives the connection back; one that is still in a transaction the pool closes.
func (o *Opened) release() {
	o.ended = true
	o.conn.Release()
}

// send sends what queue queues, behind the release of a savepoint that user code has passed.
func (o *Opened) send(ctx context.Context, queue func(*pgx.Batch)) error {
	return o.flush(ctx, o.behind(queue))
}

// behind is what queue queues, behind the release of a savepoint that user code has passed.
func (o *Opened) behind(queue func(*pgx.Batch)) *pgx.Batch {
	batch := &pgx.Batch{}
	if o.passed {
		batch.Queue(releaseSavepoint)
	}
	queue(batch)
	o.passed = false
	return batch
}

func (o *Opened) flush(ctx context.Context, batch *pgx.Batch) error {
	err := o.SendBatch(ctx, batch).Close()
	if pawl.CodeOf(err) == noSavepoint {
		return endedByText(err)
	}
	return err
}

const noSavepoint = "3B001" // it was there: the transaction is another one
