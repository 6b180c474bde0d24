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
	"github.com/pawl-go/pawl/internal/ranges"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
)

// LeaseOptions of a leased command. The zero value is fit for production.
type LeaseOptions struct {
	// Lease is how long an attempt holds the command after its last renewal. A heartbeat renews it
	// at a third. If it is too short, a slow database ends attempts. If it is too long, recovery
	// after a crash is delayed. Default 30 s, 1 s to 12 h.
	Lease time.Duration
	// Repeatable declares that the handler may run again after a lease expired. All its rows must
	// go through [Attempt.Commit]. Its calls to other systems must carry a key derived from the
	// intent, or do no harm twice. Without it the command becomes unknown
	// ([pawl.ErrOutcomeUnknown]) and does not run again until you settle it with
	// ops.CommandRef.Settle. Default false.
	Repeatable bool
	// Wait is how long a call waits for another attempt to end, as in [Options]. It does not wait
	// for a lease to expire. Default 10 s. If it is negative, a call does not wait.
	Wait time.Duration
	// Timeout ends the handler's context. Default 15 min.
	Timeout time.Duration
	// Retention is as in [Options]. Default 24 h.
	Retention time.Duration
	// Hooks receive the command's events. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
}

func (o *LeaseOptions) complete() error {
	if err := ranges.NotNegative(*o, "Wait"); err != nil {
		return &pawl.Error{Op: "command.begin", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.Lease < time.Second || o.Lease > 12*time.Hour {
		return &pawl.Error{Op: "command.begin", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the Lease must lie between 1s and 12h, it is %v", o.Lease)}
	}
	if o.Wait == 0 {
		o.Wait = 10 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Minute
	}
	return nil
}

// Leased runs fn under a lease, unless the intent is already answered, for work that calls other
// systems. The claim commits first, fn runs with no transaction open, and [Attempt.Commit] commits
// your rows and the answer together. If the lease is lost, the context ends and Commit is rejected.
//
// fn ends the command with Commit, or with [Attempt.Succeed] if it has no rows to write. If it
// returns nil without either, the zero T is stored. If it returns an error, that is recorded:
//   - a plain error as failed_retryable
//   - an error wrapped in [pawl.Final] as failed_final
//   - an error wrapped in [Unknown] as unknown
//   - a panic, a Timeout, a caller that left, or a [pawl.Retryable] error (such as an unreachable
//     database at Commit) as failed_retryable if the command is Repeatable, else as unknown,
//     because none of them tells what happened outside
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

// Begin claims an intent under a lease and returns the attempt. If the intent is already answered,
// it returns nil and the stored result. End the attempt with [Attempt.Commit], [Attempt.Succeed] or
// [Attempt.Fail], and defer [Attempt.Close], which stops its heartbeat. [Leased] does all this.
//
// Errors: see the package.
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
	c := &call[struct{}]{replicated: pgxDatabase{pool}.replicated, intent: intent, opts: Options{Wait: options.Wait, Retention: options.Retention, Hooks: options.Hooks}}
	row, err := c.lease(ctx, pool, options)
	if err != nil {
		return nil, Result[T]{}, err
	}
	if !row.Held() {
		d, err := c.storedAnswer(ctx, row)
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

// lease claims until it gets an answer or Wait expires. claimed_by identifies a claim without
// reply.
//
// claim: a crash after it costs the lease. Then the command is unknown, or runs again if
// Repeatable.
func (c *call[X]) lease(ctx context.Context, pool *pgxpool.Pool, options LeaseOptions) (row contract.CommandRow, err error) {
	args := contract.CommandClaimArgs{Intent: c.intent, Lease: options.Lease, Retention: options.Retention, Repeatable: options.Repeatable,
		ClaimedBy: holder()}
	p := patience{until: time.Now().Add(options.Wait)}
	var unanswered error
	for round := 0; ; {
		asked := time.Now()
		row, err = contract.CommandClaim(ctx, pool, args)
		if err == nil && row.Outcome == "processing_active" && row.ClaimedBy == args.ClaimedBy {
			row.Outcome = "new_claim" // ours: the reply to an earlier claim was lost
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

// holder returns a unique name for one claim: host and process for people, and a random part.
func holder() string { return process() + "/" + rand.Text() }

// process returns the name of this process for people.
func process() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%.100s/%d", host, os.Getpid())
}
