package command

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/sqldriver"
)

// Options of a command. The zero value is fit for production.
type Options struct {
	// Wait is how long a call waits for another one with the same key that is being worked on, to give the same answer; then
	// it fails with [pawl.ErrInProgress]. A waiting call holds no connection. Longer keeps callers hanging, shorter makes
	// them ask again. Default 10 s; negative: not at all.
	Wait time.Duration
	// Timeout ends the handler's context; it counts as a failure. A transaction open for long holds back vacuum for the
	// whole database. Default 30 s.
	Timeout time.Duration
	// Retention is how long a finished command is remembered, counted from its end. It must outlast every retry of every
	// caller: a key that comes back later is new. Default 24 h, 1 s to 10 years.
	Retention time.Duration
	// Isolation of the transaction. Default that of the database. Whatever it is, a transaction that loses a race (40001,
	// 40P01) runs again from its start, handler included, at most 8 times.
	Isolation pgx.TxIsoLevel
	// Hooks receive what happens.
	Hooks pawl.Hooks
}

// A Result is the answer of a command.
type Result[T any] struct {
	// Value is what the handler returned, read back from what is stored: the first caller gets what all others get.
	Value T
	// Answer is what is stored, octet by octet.
	Answer Answer
	// Replayed: an earlier call did it; this one did nothing.
	Replayed bool
	// Attempt that succeeded, from 1.
	Attempt int
	// Fence of that attempt.
	Fence int64
}

// Once runs fn in a transaction, if nobody has done so for this intent, and stores what it returns. The claim, what fn writes
// through tx, and the answer commit together or not at all. Asked again, it returns the stored answer.
//
// fn may run more than once and takes effect once. It must not commit or roll back tx, and nothing may leave the process while
// it runs. An error rolls back what it wrote and is recorded in the same transaction: a plain one as failed_retryable, to be
// run again when somebody asks again; one wrapped in [pawl.Final], or data the database refuses, as failed_final, which is the
// answer from now on. A panic and a Timeout count as plain errors. Use one connection: fn gets its transaction, and a second
// connection of the same pool may have to wait for it.
//
// If COMMIT is not answered, Once does not guess: it claims the key again, which shows who won.
//
// Errors: see the package.
func Once[T any](ctx context.Context, pool *pgxpool.Pool, intent pawl.Intent, options Options, fn func(context.Context, pgx.Tx) (T, error)) (Result[T], error) {
	if pool == nil || fn == nil {
		return Result[T]{}, missing("command.once", "the pool or the function")
	}
	return once(ctx, pgxDoor{pool}, intent, options, fn)
}

// OnceSQL is [Once] for database/sql, and so for sqlc, GORM, ent, bun and sqlx. The driver must be pgx's
// (github.com/jackc/pgx/v5/stdlib), or one that wraps it and hands on its errors; another, such as lib/pq, is [pawl.ErrArgumentInvalid].
func OnceSQL[T any](ctx context.Context, db *sql.DB, intent pawl.Intent, options Options, fn func(context.Context, *sql.Tx) (T, error)) (Result[T], error) {
	if db == nil || fn == nil {
		return Result[T]{}, missing("command.once", "the database or the function")
	}
	if err := sqldriver.Check(ctx, db); errors.As(err, new(*sqldriver.Foreign)) {
		return Result[T]{}, &pawl.Error{Op: "command.once", Code: pawl.CodeArgumentInvalid, Err: err, Hint: sqldriver.Hint}
	} else if err != nil {
		return Result[T]{}, pawl.Wrap("command.once", err)
	}
	return once(ctx, sqlDoor{db}, intent, options, fn)
}

func missing(op, what string) error {
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: errors.New(what + " is missing")}
}

func once[T, X any](ctx context.Context, d door[X], intent pawl.Intent, options Options, fn func(context.Context, X) (T, error)) (r Result[T], err error) {
	if err := intent.Validate(); err != nil {
		return r, err
	}
	c := &call[X]{door: d, db: d.db(), proof: d.replicated, intent: intent, opts: options.complete()}
	done, err := c.run(ctx, func(ctx context.Context, tx X) (Answer, error) {
		value, err := fn(ctx, tx)
		if declined := declinedIn(err); declined != nil {
			var unreadable error
			r.Value, unreadable = decode[T](declined.answer)
			return Answer{}, errors.Join(unreadable, err)
		}
		if err != nil {
			return Answer{}, err
		}
		var answer Answer
		answer, r.Value, err = encode(value)
		return answer, err
	})
	if err != nil {
		return Result[T]{}, err
	}
	return resultOf(r.Value, done)
}

// resultOf completes the result of a call; value is the one that this call made.
func resultOf[T any](value T, d knownAnswer) (r Result[T], err error) {
	if !d.ours {
		if value, err = decode[T](d.answer); err != nil {
			return r, err
		}
	}
	return Result[T]{Value: value, Answer: d.answer, Replayed: !d.ours, Attempt: d.attempt, Fence: d.fence}, nil
}

func (o Options) complete() Options {
	if o.Wait == 0 {
		o.Wait = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	return o
}

// An Info tells a handler which attempt it is.
type Info struct {
	Intent  pawl.Intent
	Attempt int   // from 1, counted when it starts
	Fence   int64 // grows at every claim; pass it to whatever must refuse a stale attempt
}

type infoKey struct{}

// InfoFrom returns the attempt that a handler's context belongs to.
func InfoFrom(ctx context.Context) (Info, bool) {
	i, ok := ctx.Value(infoKey{}).(Info)
	return i, ok
}

func withInfo(ctx context.Context, i Info) context.Context {
	return context.WithValue(ctx, infoKey{}, i)
}
