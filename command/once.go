package command

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/ranges"
	"github.com/pawl-go/pawl/internal/sqldriver"
)

// Options of a command. The zero value is fit for production.
type Options struct {
	// Wait is how long a call waits while another one holds the key. If that one ends in time, both
	// return the same answer, else the call fails with [pawl.ErrInProgress]. A waiting call holds
	// no connection. A longer Wait keeps callers hanging, a shorter one makes them retry. Default
	// 10 s. If it is negative, a call does not wait.
	Wait time.Duration
	// Timeout ends the handler's context and counts as a failure. A long transaction holds back
	// vacuum for the whole database. Default 30 s.
	Timeout time.Duration
	// Retention is how long a finished command is remembered after its end. It must outlast every
	// retry: a key that comes back later is new. Default 24 h, 1 s to 10 years.
	Retention time.Duration
	// Isolation of the transaction. Default: the database's. At every level, a transaction that
	// loses a race (40001, 40P01) is run again with its handler, 8 tries in all.
	Isolation pgx.TxIsoLevel
	// Hooks receive the command's events. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
}

// A Result is the answer of a command.
type Result[T any] struct {
	// Value is the handler's result, read back from storage, so all callers get the same.
	Value T
	// Answer is the stored answer, byte for byte.
	Answer Answer
	// Replayed: an earlier call did the work; this one only read the answer.
	Replayed bool
	// Attempt is the number of the attempt that succeeded, from 1.
	Attempt int
	// Fence of that attempt.
	Fence int64
}

// Once runs fn in a transaction and stores what it returns; a retry returns the stored answer. The
// claim, the rows that fn writes through tx, and the answer commit together or not at all.
//
// fn may run more than once, but only one run takes effect. It must not commit or roll back tx, or
// send anything out of the process. It should use only tx: a second connection may wait for it.
//
// If fn returns an error, its rows are rolled back and the error is recorded in the same
// transaction:
//   - a plain error as failed_retryable: the next retry runs fn again
//   - an error wrapped in [pawl.Final], or data that the database refuses, as failed_final: every
//     retry gets that failure
//   - a panic or a Timeout like a plain error
//
// If COMMIT gets no reply, Once claims the key again and reads the outcome.
//
// Errors: see the package.
func Once[T any](ctx context.Context, pool *pgxpool.Pool, intent pawl.Intent, options Options, fn func(context.Context, pgx.Tx) (T, error)) (Result[T], error) {
	if pool == nil || fn == nil {
		return Result[T]{}, missing("command.once", "the pool or the function")
	}
	return once(ctx, pgxDatabase{pool}, intent, options, fn)
}

// OnceSQL is [Once] for database/sql, and so for sqlc, GORM, ent, bun and sqlx. The driver must be
// pgx's (github.com/jackc/pgx/v5/stdlib), or one that wraps it and passes on its errors. For any
// other driver, such as lib/pq, it returns [pawl.ErrArgumentInvalid].
func OnceSQL[T any](ctx context.Context, db *sql.DB, intent pawl.Intent, options Options, fn func(context.Context, *sql.Tx) (T, error)) (Result[T], error) {
	if db == nil || fn == nil {
		return Result[T]{}, missing("command.once", "the database or the function")
	}
	if err := sqldriver.Check(ctx, db); errors.As(err, new(*sqldriver.Foreign)) {
		return Result[T]{}, &pawl.Error{Op: "command.once", Code: pawl.CodeArgumentInvalid, Err: err, Hint: sqldriver.Hint}
	} else if err != nil {
		return Result[T]{}, pawl.Wrap("command.once", err)
	}
	return once(ctx, sqlDatabase{db}, intent, options, fn)
}

func missing(op, what string) error {
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: errors.New(what + " is missing")}
}

func once[T, X any](ctx context.Context, d database[X], intent pawl.Intent, options Options, fn func(context.Context, X) (T, error)) (r Result[T], err error) {
	if err := intent.Validate(); err != nil {
		return r, err
	}
	if err := ranges.NotNegative(options, "Wait"); err != nil {
		return r, &pawl.Error{Op: "command.once", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	c := &call[X]{database: d, db: d.db(), replicated: d.replicated, intent: intent, opts: options.complete()}
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

// resultOf builds the result of a call. value is used if this call did the work.
func resultOf[T any](value T, d callAnswer) (r Result[T], err error) {
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
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	return o
}

// An Info identifies the attempt that a handler runs in.
type Info struct {
	Intent  pawl.Intent
	Attempt int   // from 1, counted when it starts
	Fence   int64 // grows at every claim; pass it to systems that must refuse a stale attempt
}

type infoKey struct{}

// InfoFrom returns the attempt that ctx belongs to.
func InfoFrom(ctx context.Context) (Info, bool) {
	i, ok := ctx.Value(infoKey{}).(Info)
	return i, ok
}

func withInfo(ctx context.Context, i Info) context.Context {
	return context.WithValue(ctx, infoKey{}, i)
}
