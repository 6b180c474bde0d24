package command

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
)

// LeaseOptions of a leased command. The zero value is fit for production.
type LeaseOptions struct {
	// Lease is how long an attempt may be silent before nobody believes in it any more. A heartbeat renews it at a third.
	// Too short ends attempts whose database is slow; too long delays what comes after a crash. Default 30 s, 1 s to 12 h.
	Lease time.Duration
	// Repeatable declares that running the handler again is safe after an attempt fell silent: all it writes goes through
	// [Attempt.Commit], and what it calls outside is called under a key of the intent, or does no harm twice. Without it such
	// a command becomes unknown ([pawl.ErrOutcomeUnknown]) and is not run again until somebody has settled it. Default false.
	Repeatable bool
	// Wait, as of [Options]; it is for an attempt to end, not for its lease. Default 10 s; negative: not at all.
	Wait time.Duration
	// Timeout ends the handler's context. Default 15 min.
	Timeout time.Duration
	// Retention, as of [Options]. Default 24 h.
	Retention time.Duration
	// Hooks receive what happens.
	Hooks pawl.Hooks
}

func (o *LeaseOptions) complete() error {
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.Lease < time.Second || o.Lease > 12*time.Hour {
		return &pawl.Error{Op: "command.begin", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the Lease must lie between 1s and 12h, it is %v", o.Lease)}
	}
	if o.Wait == 0 {
		o.Wait = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Minute
	}
	return nil
}

// Leased runs fn under a lease, if nobody has done so for this intent, for work that must call outside: the claim commits
// first, fn runs with no transaction open, and [Attempt.Commit] writes your rows and the answer together. The attempt's context
// ends when its lease is lost; whoever then goes on is refused at Commit.
//
// fn ends with Commit, or with [Attempt.Succeed] if there are no rows to write. Returning nil without either stores the zero T.
// An error is recorded: a plain one as failed_retryable, one wrapped in [pawl.Final] as failed_final, one wrapped in [Unknown]
// as unknown. A panic, a Timeout, a caller who left, and an error that is [pawl.Retryable], as when the database was away at
// Commit, say nothing of what happened outside: they make the command unknown, or, if it is Repeatable, failed_retryable.
//
// Errors: see the package.
func Leased[T any](ctx context.Context, pool *pgxpool.Pool, intent pawl.Intent, options LeaseOptions, fn func(context.Context, *Attempt[T]) error) (Result[T], error) {
	if fn == nil {
		return Result[T]{}, missing("command.leased", "the function")
	}
	a, r, err := Begin[T](ctx, pool, intent, options)
	if err != nil || a == nil {
		return r, err
	}
	return a.run(fn)
}

// Begin claims an intent under a lease and returns the attempt; or, if the intent has been fulfilled, nil and the stored
// result. The attempt ends with [Attempt.Commit], [Attempt.Succeed] or [Attempt.Fail]; [Attempt.Close] stops its heartbeat
// whatever happens: defer it. [Leased] does all this.
func Begin[T any](ctx context.Context, pool *pgxpool.Pool, intent pawl.Intent, options LeaseOptions) (*Attempt[T], Result[T], error) {
	if pool == nil {
		return nil, Result[T]{}, missing("command.begin", "the pool")
	}
	if err := options.complete(); err != nil {
		return nil, Result[T]{}, err
	}
	if err := intent.Validate(); err != nil {
		return nil, Result[T]{}, err
	}
	c := &call[struct{}]{proof: pgxDoor{pool}.replicated, intent: intent, opts: Options{Wait: options.Wait, Retention: options.Retention, Hooks: options.Hooks}}
	row, err := c.lease(ctx, pool, options)
	if err != nil {
		return nil, Result[T]{}, err
	}
	if !row.Held() {
		d, err := c.standing(ctx, row)
		if err != nil {
			return nil, Result[T]{}, err
		}
		r, err := resultOf(*new(T), d)
		return nil, r, err
	}
	if err := fault.At("command.begin.after"); err != nil {
		return nil, Result[T]{}, err
	}
	return newAttempt[T](ctx, pool, c, row, options), Result[T]{}, nil
}

// lease claims until there is an answer or patience ends. A claim whose reply was lost is found again by the name under which
// it was made.
//
// claim: a crash after it costs the lease, and then another run if the command is repeatable, or an operator's verdict.
func (c *call[X]) lease(ctx context.Context, pool *pgxpool.Pool, options LeaseOptions) (row contract.CommandRow, err error) {
	args := contract.CommandClaimArgs{Intent: c.intent, Lease: options.Lease, Retention: options.Retention, Repeatable: options.Repeatable,
		ClaimedBy: holder()}
	p := patience{until: time.Now().Add(options.Wait)}
	var unanswered error
	for round := 0; ; {
		asked := time.Now()
		row, err = contract.CommandClaim(ctx, pool, args)
		if err == nil && row.Outcome == "processing_active" && row.ClaimedBy == args.ClaimedBy {
			row.Outcome = "new_claim" // ours: the reply to an earlier question was lost
		}
		switch {
		case err == nil && row.Outcome != "processing_active":
			c.row, c.claimedAt = row, asked
			return row, nil
		case err == nil, verdict.IsBusy(pawl.CodeOf(err)):
			if !p.wait(ctx, c.intent) {
				return row, c.impatient(ctx, &busyError{row.RetryAfter})
			}
		case txn.LostRace(err), unanswered == nil && !txn.Refused(err), unanswered != nil && pawl.Retryable(err):
			unanswered = err
			if round++; round > rounds || !pace.Sleep(ctx, 20*time.Millisecond<<round) {
				return row, err
			}
		default:
			return row, c.refused(ctx, err)
		}
	}
}

// holder names one claim: the machine and process for people, and a text of its own.
func holder() string { return process() + "/" + rand.Text() }

// process names this process for people.
func process() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%.100s/%d", host, os.Getpid())
}
