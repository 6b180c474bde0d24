package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// An Attempt is one try at a leased command. Its methods may be called from several goroutines.
type Attempt[T any] struct {
	call *call[struct{}]
	pool *pgxpool.Pool
	opts LeaseOptions
	ctx  context.Context
	lose context.CancelCauseFunc
	stop context.CancelFunc // of the heartbeat

	refused atomic.Pointer[pawl.Error] // the database said that the attempt is not the holder any more: for good

	mu       sync.Mutex
	end      *Result[T] // stored
	finished *Result[T] // by Finish, in a transaction of yours
}

func newAttempt[T any](ctx context.Context, pool *pgxpool.Pool, c *call[struct{}], row contract.CommandClaimRow, options LeaseOptions) *Attempt[T] {
	c.db = pool
	a := &Attempt[T]{call: c, pool: pool, opts: options}
	ctx, a.lose = context.WithCancelCause(ctx)
	a.ctx = withInfo(ctx, Info{c.intent, row.Attempts, row.Fence})
	if row.Outcome == "processing_stale" {
		c.emit(ctx, pawl.Event{Kind: pawl.EventStaleTakeover, Op: "command.claim"})
	}
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	go a.keepAlive(beating)
	return a
}

// Context ends when the lease is lost, with the caller's, or with Close.
func (a *Attempt[T]) Context() context.Context { return a.ctx }

// Fence grows at every claim of the key; pass it to whatever must refuse a stale attempt, in the header guard.FenceHeader or
// to guard.AcceptFence.
func (a *Attempt[T]) Fence() int64 { return a.call.row.Fence }

// Number of the attempt, from 1.
func (a *Attempt[T]) Number() int { return a.call.row.Attempts }

// Intent of the command.
func (a *Attempt[T]) Intent() pawl.Intent { return a.call.intent }

// Owner is the same at every attempt of the command: see package effect.
func (a *Attempt[T]) Owner() pawl.Owner {
	return pawl.OwnerOf("command", a.call.intent.Scope, a.call.intent.Key, 0)
}

// Close stops the heartbeat and ends the context. It records nothing: an attempt that is closed without an end has fallen
// silent.
func (a *Attempt[T]) Close() {
	a.stop()
	a.lose(nil)
}

// Commit proves the fence, runs fn in a transaction, and ends the command with what fn returns: rows and answer commit
// together, or neither does. fn may run more than once (40001, 40P01, a COMMIT without an answer) and takes effect once. Its
// error rolls everything back and is returned; the attempt goes on.
//
// Errors: [pawl.ErrFenceLost], [pawl.ErrNotHolderSucceed]: a newer attempt has the command, or it has ended.
func (a *Attempt[T]) Commit(ctx context.Context, fn func(context.Context, pgx.Tx) (T, error)) error {
	return a.ending(ctx, func() (r Result[T], err error) {
		err = txn.Restart(ctx, func() (err error) {
			r, err = a.commitOnce(ctx, fn)
			return err
		})
		return r, err
	})
}

// commitOnce is one transaction: hold, your rows, succeed, commit.
func (a *Attempt[T]) commitOnce(ctx context.Context, fn func(context.Context, pgx.Tx) (T, error)) (r Result[T], err error) {
	// hold: a crash before it leaves a lease that runs out, and no rows.
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

// Succeed ends the command with an answer, when there are no rows of yours to commit with it.
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

// Hold locks the command's row in a transaction of yours and proves the fence. Call it first: a stale attempt stops before it
// writes, and nobody takes over while the transaction is open. For database/sql see [pawl.SQLTx].
func (a *Attempt[T]) Hold(ctx context.Context, tx pawl.Tx) error {
	if err := a.lost(); err != nil {
		return err
	}
	return a.note(contract.CommandHold(ctx, tx, a.call.intent.Scope, a.call.intent.Key, a.Fence()))
}

// Finish ends the command in a transaction of yours, after [Attempt.Hold]; then commit it. Once it has been told that it is not
// the holder any more, the attempt stays refused, whatever savepoint has swallowed the error.
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
	return a.note(contract.CommandSucceed(ctx, db, succeedArgs(a.call.intent, a.Fence(), r.Answer)))
}

// stored notes that the command has ended. The caller holds mu.
func (a *Attempt[T]) stored(r Result[T]) {
	a.end = &r
	a.stop()
	a.call.emit(a.ctx, pawl.Event{Kind: pawl.EventFresh, Op: "command.commit"})
}

// ending runs what ends the command, once, and finds out what became of a COMMIT without an answer.
func (a *Attempt[T]) ending(ctx context.Context, end func() (Result[T], error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for round := 1; ; round++ {
		if err := a.lost(); err != nil {
			return err
		}
		if a.end != nil {
			return &pawl.Error{Op: "command.succeed", Code: pawl.CodeNotHolderSucceed, Err: errors.New("the attempt has ended")}
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
		switch landed, unsure := a.ask(ctx); {
		case unsure != nil:
			return &pawl.Error{Op: "command.commit", Code: pawl.CodeCommitUnknown, Err: errors.Join(err, unsure)}
		case landed:
			a.stored(r)
			return nil
		}
	}
}

// ask finds out whether an end of this attempt is durable, by a fenced write that waits for the old transaction: what can be
// renewed has not ended.
func (a *Attempt[T]) ask(ctx context.Context) (landed bool, err error) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), askFor)
	defer cancel()
	for round := 0; round <= rounds; round++ {
		err = a.renew(detached)
		switch {
		case err == nil:
			return false, nil
		case refusal(err) == "succeeded":
			return true, txn.Prove(detached, a.pool)
		case a.lost() != nil:
			return false, err
		}
		pause(detached, 20*time.Millisecond<<round)
	}
	return false, err
}

func (a *Attempt[T]) renew(ctx context.Context) error {
	i := a.call.intent
	err := contract.CommandRenew(ctx, a.pool, i.Scope, i.Key, a.Fence(), a.opts.Lease)
	if refusal(err) == "succeeded" {
		return err
	}
	return a.note(err)
}

// note makes a refusal by the database final, whatever becomes of the error.
func (a *Attempt[T]) note(err error) error {
	var e *pawl.Error
	if errors.As(err, &e) && (e.Code == pawl.CodeFenceLost || e.Code == pawl.CodeNotHolderSucceed || e.Code == pawl.CodeNotHolderFail) {
		if a.refused.CompareAndSwap(nil, e) {
			a.call.emit(a.ctx, pawl.Event{Kind: pawl.EventStaleWriteRefused, Op: e.Op, Err: e})
		}
		a.lose(e)
	}
	return err
}

// lost returns why the attempt is refused, or nil.
func (a *Attempt[T]) lost() error {
	if e := a.refused.Load(); e != nil {
		return e
	}
	return nil
}

// refusal is the DETAIL of a refusal: what became of the attempt.
func refusal(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == string(pawl.CodeFenceLost) {
		return pg.Detail
	}
	return ""
}

// Fail ends the attempt badly, as cause says ([pawl.Final], [Unknown]; else it may be tried again), and returns the error for
// the caller.
func (a *Attempt[T]) Fail(ctx context.Context, cause error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.lost(); err != nil {
		return fmt.Errorf("%w; the handler said: %w", err, cause)
	}
	a.stop()
	err := a.call.mark(ctx, cause)
	var elsewhere *again
	if errors.As(err, &elsewhere) {
		return errors.Join(a.note(elsewhere.err), cause)
	}
	return err
}

// keepAlive renews the lease at a third of it, and ends the context when it is lost: refused by the database, or silent for so
// long that nobody may count on it.
func (a *Attempt[T]) keepAlive(ctx context.Context) {
	beat, step := a.call.claimedAt, a.opts.Lease/3
	for pause(ctx, step) {
		asked := time.Now()
		if asked.Sub(beat) > a.opts.Lease {
			a.lose(&pawl.Error{Op: "command.renew", Code: pawl.CodeFenceLost, Err: errors.New("the lease ran out unrenewed")})
		}
		limited, cancel := context.WithTimeout(ctx, a.opts.Lease/6)
		err := a.renew(limited)
		cancel()
		step = a.opts.Lease / 3
		switch {
		case err == nil, pawl.CodeOf(err) == "55P03": // an open transaction has the row: nobody can take it over
			beat = asked
		case refusal(err) != "" || ctx.Err() != nil:
			return
		default:
			a.call.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "command.renew", Err: err})
			step = a.opts.Lease / 12
		}
	}
}

// run takes the handler to its end.
func (a *Attempt[T]) run(fn func(context.Context, *Attempt[T]) error) (Result[T], error) {
	defer a.Close()
	defer inFlight.enter(a.call.intent)()
	failure := txn.Run(a.ctx, a.opts.Timeout, func(ctx context.Context) error {
		if err := fault.At("command.work.before"); err != nil {
			return err
		}
		if err := fn(ctx, a); err != nil {
			return err
		}
		return fault.At("command.work.after")
	})
	if r := a.ended(); r != nil {
		if failure != nil {
			a.call.emit(a.ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "command.work", Err: failure})
		}
		return *r, nil
	}
	if failure == nil {
		failure = a.conclude()
	}
	if r := a.ended(); r != nil {
		return *r, nil
	}
	return Result[T]{}, a.Fail(a.ctx, a.read(failure))
}

// conclude ends a command whose handler has returned without a Commit.
func (a *Attempt[T]) conclude() error {
	a.mu.Lock()
	finished := a.finished
	a.mu.Unlock()
	if finished == nil {
		return a.Succeed(a.ctx, *new(T))
	}
	landed, err := a.ask(a.ctx)
	if err == nil && !landed {
		return errors.New("the transaction in which the command was finished did not commit")
	}
	if err == nil {
		a.mu.Lock()
		a.stored(*finished)
		a.mu.Unlock()
		return nil
	}
	return err
}

func (a *Attempt[T]) ended() *Result[T] {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.end
}

// read says of an attempt that was cut off, or could not store what it had done, that nobody knows what that was, unless doing
// it again does no harm.
func (a *Attempt[T]) read(failure error) error {
	cut := txn.Abrupt(failure) || errors.Is(failure, context.Canceled) || errors.Is(failure, context.DeadlineExceeded) ||
		pawl.MayHaveHappened(failure) || pawl.Retryable(failure)
	if cut && !a.opts.Repeatable {
		return Unknown(failure)
	}
	return failure
}

func randomName() string { return rand.Text() }
