package httpkey

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/sqldriver"
)

// A Handler answers a request in a transaction, pgx.Tx or *sql.Tx. The rules are those of
// [command.Once]: write through tx, neither commit nor roll back, send nothing out of the process.
// The handler may run more than once, but only one run takes effect.
//
// The response is buffered until COMMIT. A final status ends the command: 200 to 399 commits the
// rows, 4xx rolls them back. After any other status, the rows are rolled back and the same key may
// be retried. The default is 200, a second status is ignored, Flush and Hijack fail.
//
// If the handler returns an error, its response is dropped. An error wrapped in [pawl.Final], or
// data that the database refuses, is answered 422 at every retry. Any other error, or a panic, is
// answered 500 this once. [http.ErrAbortHandler] aborts the response, as in net/http.
//
// r is a copy with a body of its own. Its context ends with Options.Timeout, not with the caller's.
type Handler[X any] func(w http.ResponseWriter, r *http.Request, tx X) error

// Once returns a handler that answers each key once. Claim, rows and answer commit in one
// transaction before the answer is sent. Like [http.ServeMux.Handle] it panics on invalid
// arguments.
func Once(pool *pgxpool.Pool, tenant Tenant, options Options, handler Handler[pgx.Tx]) http.Handler {
	required(pool != nil, tenant != nil, handler != nil)
	return once(tenant, options, handler, func(ctx context.Context, i pawl.Intent, fn func(context.Context, pgx.Tx) (command.Answer, error), o command.Options) (command.Result[command.Answer], error) {
		return command.Once(ctx, pool, i, o, fn)
	})
}

// OnceSQL is [Once] for database/sql, and so for sqlc, GORM, ent, bun and sqlx. The driver must be
// pgx's (github.com/jackc/pgx/v5/stdlib), or one that wraps it and passes on its errors. For any
// other, such as lib/pq, OnceSQL panics. A driver that is not pgx's own is tested with two
// statements, within 5 s, or at the first request if the database is unreachable.
func OnceSQL(db *sql.DB, tenant Tenant, options Options, handler Handler[*sql.Tx]) http.Handler {
	required(db != nil, tenant != nil, handler != nil)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := sqldriver.Check(ctx, db); errors.As(err, new(*sqldriver.Foreign)) {
		panic("httpkey: " + err.Error() + ": " + sqldriver.Hint)
	}
	return once(tenant, options, handler, func(ctx context.Context, i pawl.Intent, fn func(context.Context, *sql.Tx) (command.Answer, error), o command.Options) (command.Result[command.Answer], error) {
		return command.OnceSQL(ctx, db, i, o, fn)
	})
}

// required panics at the start of the program, not at its first request, if an argument is nil.
func required(database, tenant, handler bool) {
	for what, given := range map[string]bool{"database": database, "Tenant": tenant, "handler": handler} {
		if !given {
			panic("httpkey: the " + what + " is missing")
		}
	}
}

type runner[X any] func(context.Context, pawl.Intent, func(context.Context, X) (command.Answer, error), command.Options) (command.Result[command.Answer], error)

func once[X any](tenant Tenant, options Options, handler Handler[X], run runner[X]) http.Handler {
	options = options.complete()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, ok := enter(options, tenant, w, r)
		if !ok {
			return
		}
		leash, aborted := x.leash(), false
		defer leash.end()
		result, err := run(leash, x.intent, func(ctx context.Context, tx X) (command.Answer, error) {
			if err := leash.enter(); err != nil {
				return command.Answer{}, err
			}
			x.last = newRecording(&x.options, info(ctx))
			defer x.last.end()
			defer noteAbort(&aborted)
			answer, err := x.last.answer(handler(x.last, x.request(ctx), tx))
			if err == nil && answer.Response.Status >= 400 && !x.options.KeepRefused {
				return answer, command.Decline(answer)
			}
			return answer, err
		}, x.commandOptions())
		if aborted && err != nil {
			panic(http.ErrAbortHandler)
		}
		x.reply(result, err)
	})
}

// Without a key no retry can come, so a minute of retention is enough.
func (x *exchange) commandOptions() command.Options {
	o := x.options.command()
	o.Hooks = pawl.Hooks{OnEvent: func(ctx context.Context, e pawl.Event) {
		if e.Err != nil {
			x.told.Store(true)
		}
		x.options.Hooks.Emit(ctx, e)
	}}
	if !x.keyed {
		o.Retention = time.Minute
	}
	return o
}

// noteAbort records a panic with [http.ErrAbortHandler] and panics on.
func noteAbort(aborted *bool) {
	if cause := recover(); cause != nil {
		*aborted = cause == http.ErrAbortHandler //nolint:errorlint // as net/http compares it
		panic(cause)
	}
}
