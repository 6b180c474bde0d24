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

// A Handler answers a request in a transaction that it is handed, pgx.Tx or *sql.Tx. The rules are those of [command.Once]: write
// through tx, neither commit nor roll back, send nothing out of the process; it may run more than once and takes effect once.
//
// What it writes to w is kept back until COMMIT. A final status ends the command: from 200 to 399 together with its rows, 4xx
// without them. Another status is passed on; the rows are rolled back and the same key may be tried again. Writing nothing is
// 200, a second status is ignored. Flush and Hijack are refused.
//
// An error drops what was written: one wrapped in [pawl.Final], or data that the database refuses, is answered 422 from now on,
// any other, and a panic, 500 this once. [http.ErrAbortHandler] aborts the response, as it does elsewhere.
//
// r is a copy with a body of its own. Its context does not end when the caller leaves, but with Options.Timeout.
type Handler[X any] func(w http.ResponseWriter, r *http.Request, tx X) error

// Once returns a handler that answers each key once: claim, the rows of handler and the answer commit in one transaction, and
// only then is the answer sent. It panics, as [http.ServeMux.Handle] does, if pool, tenant or handler is nil or the options cannot be.
func Once(pool *pgxpool.Pool, tenant Tenant, options Options, handler Handler[pgx.Tx]) http.Handler {
	required(pool != nil, tenant != nil, handler != nil)
	return once(tenant, options, handler, func(ctx context.Context, i pawl.Intent, fn func(context.Context, pgx.Tx) (command.Answer, error), o command.Options) (command.Result[command.Answer], error) {
		return command.Once(ctx, pool, i, o, fn)
	})
}

// OnceSQL is [Once] for database/sql, and so for sqlc, GORM, ent, bun and sqlx. The driver must be pgx's
// (github.com/jackc/pgx/v5/stdlib), or one that wraps it and hands on its errors. It panics for another, such as lib/pq: a driver that is not
// pgx's own is asked at once, with two statements within 5 s. If the database cannot be reached then, it is asked at the first request.
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

// required panics if what a handler cannot be without is missing: at the start of the program, not at its first request.
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

// commandOptions are those of the command. What came without a key is not asked for again.
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

// noteAbort notes a panic that wants the response aborted, and lets it pass.
func noteAbort(aborted *bool) {
	if cause := recover(); cause != nil {
		*aborted = cause == http.ErrAbortHandler //nolint:errorlint // it is compared so by net/http
		panic(cause)
	}
}
