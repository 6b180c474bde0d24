package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
)

// Commit checks the fence, runs fn in a transaction, and ends the command with the value that fn
// returns. Rows and answer commit together or not at all. After 40001, 40P01 or a COMMIT without a
// reply, fn may run again; only one run takes effect. If fn returns an error, everything is rolled
// back, the error is returned, and the attempt goes on.
//
// Errors: [pawl.ErrFenceLost] if a newer attempt has the command, or it has ended.
func (a *Attempt[T]) Commit(ctx context.Context, fn func(context.Context, pgx.Tx) (T, error)) error {
	return a.ending(ctx, func() (r Result[T], err error) {
		err = txn.Restart(ctx, func() (err error) {
			r, err = a.commitOnce(ctx, fn)
			return err
		})
		return r, err
	})
}

// commitOnce runs one transaction: hold, the caller's rows, succeed, COMMIT.
func (a *Attempt[T]) commitOnce(ctx context.Context, fn func(context.Context, pgx.Tx) (T, error)) (r Result[T], err error) {
	// hold: a crash before it leaves a lease that expires, and no rows.
	if err := fault.At("command.hold.before"); err != nil {
		return r, err
	}
	tx, err := txn.Begin(ctx, a.pool, "command.begin", a.opts.Timeout+abandonAfter)
	if err != nil {
		return r, err
	}
	defer txn.Rollback(ctx, tx)
	if err := a.Hold(ctx, tx); err != nil {
		return r, err
	}
	var value T
	err = tx.Guard(ctx, a.opts.Timeout, func(ctx context.Context, tx pgx.Tx) (err error) {
		value, err = fn(ctx, tx)
		return err
	})
	if err != nil {
		return r, err
	}
	if r, err = a.result(value); err != nil {
		return r, err
	}
	if err := a.succeed(ctx, tx, r); err != nil {
		return r, err
	}
	return r, commit(ctx, func(ctx context.Context, op string) error { return txn.Commit(ctx, op, tx) })
}

// Succeed ends the command with an answer. Use it if you have no rows to commit with it.
//
// Errors: [pawl.ErrFenceLost] if a newer attempt has the command. [pawl.ErrCommitUnknown] if the
// reply was lost: claim the key again.
func (a *Attempt[T]) Succeed(ctx context.Context, value T) error {
	return a.ending(ctx, func() (Result[T], error) {
		if err := fault.At("command.succeed.before"); err != nil {
			return Result[T]{}, err
		}
		r, err := a.result(value)
		if err != nil {
			return r, err
		}
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), markFor)
		defer cancel()
		err = a.succeed(detached, a.pool, r)
		if err != nil && !txn.Refused(err) {
			err = &pawl.Error{Op: "command.succeed", Code: pawl.CodeCommitUnknown, Err: err}
		}
		if err == nil {
			_ = fault.At("command.succeed.after")
		}
		return r, err
	})
}

// Hold locks the command's row in your transaction and checks the fence. Call it first, so that a
// stale attempt writes nothing. It prevents a takeover until the transaction ends. For database/sql
// see [pawl.SQLTx].
//
// Errors: [pawl.ErrFenceLost] if a newer attempt has the command, or it has ended.
func (a *Attempt[T]) Hold(ctx context.Context, tx pawl.Tx) error {
	if err := a.lost(); err != nil {
		return err
	}
	return a.note(contract.CommandHold(ctx, tx, a.call.intent.Scope, a.call.intent.Key, a.Fence()))
}

// Finish ends the command in your transaction, after [Attempt.Hold]; then commit it. If the fence
// is refused ([pawl.ErrFenceLost]), the attempt stays refused, even if you roll back to a
// savepoint.
func (a *Attempt[T]) Finish(ctx context.Context, tx pawl.Tx, value T) error {
	if err := a.lost(); err != nil {
		return err
	}
	r, err := a.result(value)
	if err != nil {
		return err
	}
	if err := a.succeed(ctx, tx, r); err != nil {
		return err
	}
	a.mu.Lock()
	a.finished = &r
	a.mu.Unlock()
	return nil
}

func (a *Attempt[T]) result(value T) (Result[T], error) {
	answer, stored, err := encode(value)
	return Result[T]{Value: stored, Answer: answer, Attempt: a.Number(), Fence: a.Fence()}, err
}

func (a *Attempt[T]) succeed(ctx context.Context, db pawl.DB, r Result[T]) error {
	return a.note(contract.CommandSucceed(ctx, db, contract.CommandSucceedArgs{
		Scope: a.call.intent.Scope, Key: a.call.intent.Key, Fence: a.Fence(), Answer: r.Answer.stored()}))
}

// stored records that the command has ended. The caller holds mu.
func (a *Attempt[T]) stored(r Result[T]) {
	a.end = &r
	a.stop()
	a.call.emit(a.ctx, pawl.Event{Kind: pawl.EventSucceeded, Op: "command.commit"})
}

// ending runs end, and runs it again if COMMIT got no reply and did not take effect.
func (a *Attempt[T]) ending(ctx context.Context, end func() (Result[T], error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for round := 1; ; round++ {
		if err := a.lost(); err != nil {
			return err
		}
		if a.end != nil {
			return &pawl.Error{Op: "command.succeed", Code: pawl.CodeFenceLost, Err: errors.New("the attempt has ended")}
		}
		r, err := end()
		if err == nil {
			a.stored(r)
			return nil
		}
		if !pawl.MayHaveHappened(err) || errors.Is(err, txn.ErrEnded) || round > rounds {
			return err
		}
		a.call.emit(ctx, pawl.Event{Kind: pawl.EventCommitUnknown, Op: "command.commit", Err: err})
		switch executed, unsure := a.ask(ctx); {
		case unsure != nil:
			return &pawl.Error{Op: "command.commit", Code: pawl.CodeCommitUnknown, Err: errors.Join(err, unsure)}
		case executed:
			a.stored(r)
			return nil
		}
	}
}

// ask finds out whether an end of this attempt is durable. It renews the lease: that waits for the
// old transaction's lock on the row, and succeeds only if the command has not ended.
func (a *Attempt[T]) ask(ctx context.Context) (executed bool, err error) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), askFor)
	defer cancel()
	for round := 0; round <= rounds; round++ {
		err = a.renew(detached)
		switch {
		case err == nil:
			return false, nil
		case refusal(err) == "succeeded":
			if executed, unsure := a.executed(detached); executed || unsure != nil {
				return executed, unsure
			}
		case a.lost() != nil:
			return false, err
		}
		pace.Sleep(detached, 20*time.Millisecond<<round)
	}
	return false, err
}

// executed reports whether the row holds the success of this attempt, once that row is replicated.
func (a *Attempt[T]) executed(ctx context.Context) (bool, error) {
	row, found, err := contract.CommandLook(ctx, a.pool, a.call.intent)
	if err != nil || !found || row.Outcome != "replay_success" || row.Fence != a.Fence() {
		return false, pawl.Wrap("command.commit", err)
	}
	return true, a.call.replicated(ctx, row.ReadOn)
}

// Fail ends the attempt with a failure, of the kind that cause says: [pawl.Final], [Unknown], else
// retryable. It returns the error for the caller.
func (a *Attempt[T]) Fail(ctx context.Context, cause error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.lost(); err != nil {
		return fmt.Errorf("%w; the handler said: %w", err, cause)
	}
	a.stop()
	err := a.call.mark(ctx, cause)
	var elsewhere *askAgainError
	if errors.As(err, &elsewhere) {
		return errors.Join(a.note(elsewhere.err), cause)
	}
	return err
}
