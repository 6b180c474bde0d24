package httpkey

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/command"
)

// A Lease of a leased route. The zero value is fit for production.
type Lease struct {
	// For is how long an attempt may be silent before nobody believes in it any more. Default 30 s, 1 s to 12 h.
	For time.Duration
	// Repeatable declares that running the handler again is safe after an attempt fell silent: all it writes goes through
	// [Attempt.Commit], and what it calls outside is called under a key of the intent, or does no harm twice. Without it whoever
	// asks again is answered 409, and the handler does not run again until somebody has settled the command. Default false.
	Repeatable bool
}

// An Attempt is one try at a request of a leased route.
type Attempt struct {
	attempt *command.Attempt[command.Answer]
	record  *recording
	done    bool
}

// Fence grows at every claim of the key; pass it to whatever must refuse a stale attempt.
func (a *Attempt) Fence() int64 { return a.attempt.Fence() }

// Number of the attempt, from 1.
func (a *Attempt) Number() int { return a.attempt.Number() }

// Commit proves the fence, runs fn in a transaction, and ends the command: rows and response commit together, or neither does.
// The response must be complete when fn returns, and its status final; what is written later is refused. fn may run more than
// once and takes effect once; what it wrote to the response is taken back in between.
//
// Errors are those of [command.Attempt.Commit]; return them.
func (a *Attempt) Commit(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	header, status, length := a.record.header.Clone(), a.record.status, a.record.body.Len()
	err := a.attempt.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (command.Answer, error) {
		a.record.reopen(header, status, length)
		return a.record.answer(fn(ctx, tx))
	})
	if a.done = err == nil; err != nil {
		a.record.reopen(header, status, length)
	}
	return err
}

// A LeasedHandler answers a request for which something outside must be called; no transaction is open. It writes rows, and the
// response that belongs to them, in [Attempt.Commit]. If it returns nil without, the response is stored by itself; a status that
// is not final, or an error, ends the attempt badly, as by [command.Leased]: wrap what may have happened in [command.Unknown].
//
// r is a copy with a body of its own. Its context ends when the lease is lost, or with Options.Timeout, not when the caller leaves.
type LeasedHandler func(w http.ResponseWriter, r *http.Request, a *Attempt) error

// Leased returns a handler that answers each key once, by work between a claim and an end that are transactions of their own. A
// caller who changes the request is told so at once, one who repeats it while it is worked on is answered 409. It panics if the
// options cannot be; KeepRefused means nothing here.
func Leased(pool *pgxpool.Pool, tenant Tenant, lease Lease, options Options, handler LeasedHandler) http.Handler {
	required(pool != nil, tenant != nil, handler != nil)
	options = options.complete()
	if lease.For != 0 && (lease.For < time.Second || lease.For > 12*time.Hour) {
		panic(fmt.Sprintf("httpkey: a Lease lasts from 1s to 12h, not %v", lease.For))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, ok := enter(options, tenant, w, r)
		if !ok {
			return
		}
		leash, aborted := x.leash(), false
		defer leash.end()
		result, err := command.Leased(leash, pool, x.intent, x.leaseOptions(lease), func(ctx context.Context, a *command.Attempt[command.Answer]) error {
			if err := leash.enter(); err != nil {
				return err
			}
			defer noteAbort(&aborted)
			return x.attempt(ctx, a, handler)
		})
		if aborted && err != nil {
			panic(http.ErrAbortHandler)
		}
		x.reply(result, err)
	})
}

func (x *exchange) leaseOptions(lease Lease) command.LeaseOptions {
	o := x.commandOptions()
	return command.LeaseOptions{Lease: lease.For, Repeatable: lease.Repeatable, Wait: o.Wait, Timeout: o.Timeout, Retention: o.Retention, Hooks: o.Hooks}
}

// attempt runs the handler once, and ends the command unless it has done so.
func (x *exchange) attempt(ctx context.Context, a *command.Attempt[command.Answer], handler LeasedHandler) error {
	x.last = newRecording(&x.options, a.Fence())
	defer x.last.end()
	attempt := &Attempt{attempt: a, record: x.last}
	failure := handler(x.last, x.request(ctx), attempt)
	if attempt.done {
		if x.last.wasLate() {
			failure = errors.Join(failure, ErrSealed)
		}
		return failure // the command has ended: it is only reported
	}
	answer, err := x.last.answer(failure)
	if err != nil {
		return err
	}
	return a.Succeed(ctx, answer)
}
