package consumer

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/job"
)

// An Attempt is one try of a [Handle]. It is valid during that call, and not for concurrent use.
type Attempt[T any] struct {
	Message[T]
	try *try
}

// A try is an attempt without its payload's type.
type try struct {
	delivery pawl.Delivery
	consumer *Consumer
	job      job.Job
	ended    bool
	failure  error
}

// Number counts the tries of this delivery from 1.
func (a *Attempt[T]) Number() int { return a.try.job.Attempt }

// Fence grows with every attempt. Pass it to systems that must refuse stale ones; see
// [lock.AcceptFence].
//
// [lock.AcceptFence]: https://pkg.go.dev/github.com/pawl-go/pawl/lock#AcceptFence
func (a *Attempt[T]) Fence() int64 { return a.try.job.Fence }

// Hold checks in a transaction of yours that this attempt still owns the delivery, and locks the
// delivery until the transaction ends: see [pawl.Holder]. [Attempt.Commit] calls it.
//
// Errors: [pawl.ErrFenceLost].
func (a *Attempt[T]) Hold(ctx context.Context, tx pawl.Tx) error { return a.try.job.Hold(ctx, tx) }

// Owner is the same for all attempts and all deliveries of a SemanticKey: see package step.
func (a *Attempt[T]) Owner() pawl.Owner {
	headers := a.try.job.Headers
	return contract.OwnerOf("inbox", a.try.consumer.cfg.Name, cmp.Or(textAt(headers, headerStepKey), textAt(headers, headerInboxKey)), a.try.job.ID)
}

// Job is the id of the job that owns the delivery, for logs and operators.
func (a *Attempt[T]) Job() int64 { return a.try.job.ID }

// Commit runs fn, for at most 30 s, in a transaction that also ends the delivery. It first
// checks that this attempt still owns the delivery. The writes of fn and the end of the delivery
// commit together or not at all. Call it once, last, and return its error.
//
// If the transaction loses a race (40001, 40P01), it runs again with fn, 8 tries in all. If the
// delivery's SemanticKey took effect meanwhile, the delivery ends without running fn. Only a
// consumer of this name with another form can cause that.
//
// Errors: [pawl.ErrFenceLost] if a newer attempt owns the delivery; the error of fn.
func (a *Attempt[T]) Commit(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return a.try.end(ctx, false, fn)
}

// CommitSQL is [Attempt.Commit] for database/sql: see [HandleSQL].
func (a *Attempt[T]) CommitSQL(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return a.try.end(ctx, true, func(ctx context.Context, tx pgx.Tx) error {
		return txn.LendSQL(ctx, tx, func(tx *sql.Tx) error { return fn(ctx, tx) })
	})
}

// commitTimeout bounds an attempt's transaction, because it holds back vacuum while it is open.
const commitTimeout = 30 * time.Second

// end settles the delivery together with the writes of fn. Set onSQL if fn needs a *sql.Tx.
func (t *try) end(ctx context.Context, onSQL bool, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if t.ended || t.failure != nil {
		return &pawl.Error{Op: "consumer.commit", Code: pawl.CodeArgumentInvalid, Err: errors.New("Commit was called before")}
	}
	t.failure = txn.Restart(ctx, func() error { return t.commit(ctx, onSQL, fn) })
	t.ended = t.failure == nil
	return t.failure
}

func (t *try) commit(ctx context.Context, onSQL bool, fn func(ctx context.Context, tx pgx.Tx) error) error {
	c := t.consumer
	tx, err := txn.Opener{Pool: c.pool, SQL: onSQL, Limit: txn.ReplyLimit}.Begin(ctx, "consumer.begin", commitTimeout+abandonAfter)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx, tx)
	if err := t.job.Hold(ctx, tx); err != nil {
		return err
	}
	if err := c.settle(ctx, tx, t.job); err != nil {
		return err
	}
	p, err := c.unlessRepeated(ctx, tx, t.delivery, textAt(t.job.Headers, headerInboxKey), func() error {
		return tx.Guard(ctx, commitTimeout, fn)
	})
	if err != nil {
		return err
	}
	if err := c.unreserve(ctx, tx, t); err != nil {
		return err
	}
	if err := t.job.Finish(ctx, tx); err != nil {
		return err
	}
	if err := fault.At("attempt.commit.before"); err != nil {
		return err
	}
	if err := txn.Commit(ctx, "consumer.commit", tx); err != nil {
		return err
	}
	if p.admission == repeated {
		c.emitOf(ctx, t.delivery, pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: "consumer.semantic", JobID: t.job.ID})
	}
	return nil
}
