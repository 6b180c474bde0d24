package command

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// An Attempt is one try at a leased command. Its methods are safe for concurrent use.
type Attempt[T any] struct {
	call *call[struct{}]
	pool *pgxpool.Pool
	opts LeaseOptions
	ctx  context.Context
	lose context.CancelCauseFunc
	stop context.CancelFunc // stops the heartbeat

	refused atomic.Pointer[pawl.Error] // the database's first P4020; never reset

	mu       sync.Mutex
	end      *Result[T] // the stored result
	finished *Result[T] // by Finish, in the caller's transaction
}

func newAttempt[T any](ctx context.Context, pool *pgxpool.Pool, c *call[struct{}], row contract.CommandRow, options LeaseOptions) *Attempt[T] {
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

// Context ends when the lease is lost, when the caller's context ends, or at Close.
func (a *Attempt[T]) Context() context.Context { return a.ctx }

// Fence grows at every claim of the key. Pass it to systems that must refuse a stale attempt, in
// the header lock.FenceHeader or to lock.AcceptFence.
func (a *Attempt[T]) Fence() int64 { return a.call.row.Fence }

// Number returns the number of the attempt, from 1.
func (a *Attempt[T]) Number() int { return a.call.row.Attempts }

// Intent returns the intent of the command.
func (a *Attempt[T]) Intent() pawl.Intent { return a.call.intent }

// Owner returns the owner of the command's steps, the same at every attempt. See package step.
func (a *Attempt[T]) Owner() pawl.Owner {
	return contract.OwnerOf("command", a.call.intent.Scope, a.call.intent.Key, 0)
}

// Close stops the heartbeat and ends the context. It records nothing: without an end, the command
// stays in progress until the lease expires.
func (a *Attempt[T]) Close() {
	a.stop()
	a.lose(nil)
}

// run calls the handler and ends the command.
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
			a.call.emit(a.ctx, pawl.Event{Kind: pawl.EventError, Op: "command.work", Err: failure})
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

// conclude ends a command whose handler returned nil without Commit or Succeed.
func (a *Attempt[T]) conclude() error {
	a.mu.Lock()
	finished := a.finished
	a.mu.Unlock()
	if finished == nil {
		return a.Succeed(a.ctx, *new(T))
	}
	executed, err := a.ask(a.ctx)
	if err == nil && !executed {
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

// read decides whether a failure leaves the outcome unknown: the attempt was cut off, or could not
// store its result. A Repeatable command is simply retried.
func (a *Attempt[T]) read(failure error) error {
	cut := txn.Abrupt(failure) || errors.Is(failure, context.Canceled) || errors.Is(failure, context.DeadlineExceeded) ||
		pawl.MayHaveHappened(failure) || pawl.Retryable(failure)
	if cut && !a.opts.Repeatable {
		return Unknown(failure)
	}
	return failure
}
