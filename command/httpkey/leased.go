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
	// For is how long an attempt holds the key after its last renewal. Default 30 s, 1 s to 12 h.
	For time.Duration
	// Repeatable declares that the handler may run again after a lease expired. All its rows must
	// go through [Attempt.Commit]. Its calls to other systems must carry a key derived from the
	// intent, or be harmless when repeated. Without Repeatable, a key whose lease expired is
	// answered 409 until you settle its command: see ops.CommandRef.Settle. Default false.
	Repeatable bool
}

// An Attempt is one try at a request of a leased route.
type Attempt struct {
	attempt *command.Attempt[command.Answer]
	record  *recording
	done    bool
}

// Fence grows at every claim of the key. Pass it to systems that must refuse a stale attempt.
func (a *Attempt) Fence() int64 { return a.attempt.Fence() }

// Number returns the number of the attempt, from 1.
func (a *Attempt) Number() int { return a.attempt.Number() }

// Commit checks that this attempt still holds the key, runs fn in a transaction, and ends the
// command. Rows and response commit together or not at all. When fn returns nil, the response must
// be complete and have a final status, or Commit fails; later writes fail. fn may run more than
// once; one run takes effect. Each run begins with the response as it was when Commit was called.
//
// Errors: [pawl.ErrFenceLost] if a newer attempt holds the key; the error of fn. Return them.
func (a *Attempt) Commit(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	header, status, length := a.record.header.Clone(), a.record.status, a.record.body.Len()
	err := a.attempt.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (command.Answer, error) {
		a.record.reopen(header, status, length)
		return a.record.answer(fn(ctx, tx))
	})
	if err == nil {
		a.done = true
	} else if !a.done {
		a.record.reopen(header, status, length)
	}
	return err
}

// A LeasedHandler answers a request that needs calls to other systems. No transaction is open.
// Write rows and their response in [Attempt.Commit]. If the handler returns nil without Commit, the
// response alone is stored. If it returns an error, or a status that is not final, the key stays
// open for a retry. If a call may have been executed although it returned an error, return
// [command.Unknown] of that error.
//
// r is a copy with a body of its own. Its context ends when the lease is lost or with
// Options.Timeout, not when the caller leaves.
type LeasedHandler func(w http.ResponseWriter, r *http.Request, a *Attempt) error

// Leased returns a handler that runs once for each key and replays its response. The claim of the
// key and the end of the command are separate transactions. While the handler runs, a retry waits
// for Options.Wait and then gets 409; a different request with the key gets 422. Leased panics if
// an argument is nil, or if the lease or the options are invalid. KeepRefused has no effect.
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

// attempt runs the handler once and ends the command, unless the handler has ended it.
func (x *exchange) attempt(ctx context.Context, a *command.Attempt[command.Answer], handler LeasedHandler) error {
	x.last = newRecording(&x.options, a.Fence())
	defer x.last.end()
	attempt := &Attempt{attempt: a, record: x.last}
	failure := handler(x.last, x.request(ctx), attempt)
	if attempt.done {
		if x.last.wasLate() {
			failure = errors.Join(failure, ErrSealed)
		}
		return failure // the command has ended; the failure is only reported
	}
	answer, err := x.last.answer(failure)
	if err != nil {
		return err
	}
	return a.Succeed(ctx, answer)
}
