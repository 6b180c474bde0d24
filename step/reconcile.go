package step

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/ranges"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/internal/txn"
)

// A Reconciliation configures [Reconcile]. Providers is required.
type Reconciliation struct {
	// Providers holds the probe of each [Step.Provider]; steps of other providers are skipped. The
	// Call has the owner, the step, the key, and the number and fence of the last call. The result
	// settles the step, so the probe must read strongly consistent data.
	Providers map[string]Probe
	// Actor is recorded in the audit. Default "step.Reconcile".
	Actor string
	// Settle is how long after its deadline a request may take effect; a probe waits. Default 10 s.
	Settle time.Duration
	// Timeout of one probe. Default 30 s.
	Timeout time.Duration
	// Hooks receive [pawl.EventError] for a probe that failed. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
}

// Reconciled counts the unknown steps by result.
type Reconciled struct {
	Executed, NotExecuted int // settled
	CannotTell            int // stay unknown
	Failed                int // the probe failed; asked again next time
	Early                 int // a request may still be sent or take effect
	Moved                 int // settled or called again during the probe; its result was dropped
}

// Reconcile asks the providers about all unknown steps and settles those that they know, with a
// record in pawl.audit. Jobs that wait for these steps continue. Run it regularly, from a job or by
// hand. Concurrent runs are safe: a result names the call that it is about, and is dropped if
// another call has begun since. It needs the role pawl_operator.
//
// It returns the first database error. Steps settled before it stay settled.
func Reconcile(ctx context.Context, pool *pgxpool.Pool, r Reconciliation) (done Reconciled, err error) {
	if err := r.check(pool); err != nil {
		return done, &pawl.Error{Op: "step.reconcile", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	r.complete()
	args := catalog.StepQuery{Providers: slices.Sorted(maps.Keys(r.Providers)), Statuses: []string{"unknown"}, Page: catalog.Page{Limit: 100}}
	for {
		rows, err := catalog.Steps[catalog.StepRow](ctx, pool, args)
		if err != nil {
			return done, err
		}
		for _, row := range rows {
			if err := r.reconcile(ctx, pool, row, &done); err != nil {
				return done, err
			}
			args.After = []string{row.Scope, row.Key, row.Step}
		}
		if len(rows) < args.Limit {
			return done, nil
		}
	}
}

func (r *Reconciliation) check(pool *pgxpool.Pool) error {
	switch {
	case pool == nil:
		return errors.New("the pool is missing")
	case len(r.Providers) == 0:
		return errors.New("there is no provider to ask")
	}
	if err := ranges.NotNegative(*r); err != nil {
		return err
	}
	for name, probe := range r.Providers {
		if probe == nil {
			return fmt.Errorf("the probe of provider %s is missing", name)
		}
	}
	return nil
}

func (r *Reconciliation) complete() {
	if r.Actor == "" {
		r.Actor = "step.Reconcile"
	}
	if r.Settle == 0 {
		r.Settle = defaultSettle
	}
	if r.Timeout == 0 {
		r.Timeout = defaultTimeout
	}
}

// reconcile asks about one step. Its error is the database's, or the cause of an ended ctx.
func (r *Reconciliation) reconcile(ctx context.Context, pool *pgxpool.Pool, row catalog.StepRow, done *Reconciled) error {
	if row.LastNotAfter != nil && row.ReadAt.Before(row.LastNotAfter.Add(r.Settle)) {
		done.Early++
		return nil
	}
	c := Call{Owner: pawl.Owner{Scope: row.Scope, Key: row.Key}, Step: row.Step, key: row.ProviderKey, Fence: row.Fence, Number: row.Calls, Again: true,
		Deadline: time.Now().Add(r.Timeout), seen: &seen{}}
	if row.JobID != nil {
		c.Owner.JobID = *row.JobID
	}
	verdict, result, err := ask(ctx, r.Providers[*row.Provider], c)
	if err != nil {
		done.Failed++
		r.Hooks.Emit(context.WithoutCancel(ctx), pawl.Event{Kind: pawl.EventError, Op: "step.reconcile", Scope: row.Scope,
			Key: row.Key + " " + row.Step, JobID: c.Owner.JobID, Err: err})
		return context.Cause(ctx)
	}
	if verdict == CannotTell {
		done.CannotTell++
		return nil
	}
	reference, _ := c.seen.noted()
	settled, err := settle(ctx, pool, contract.StepSettleArgs{Scope: row.Scope, Key: row.Key, Step: row.Step, Fence: row.Fence, Verdict: string(verdict),
		Actor: r.Actor, Reason: "the provider was asked", Result: string(result), Reference: text.Octets(reference, 255)})
	switch {
	case err != nil:
		return err
	case settled.Outcome == "early":
		done.Early++
	case settled.Outcome == "settled" && verdict == Executed:
		done.Executed++
	case settled.Outcome == "settled":
		done.NotExecuted++
	default: // refused, moved, absent
		done.Moved++
	}
	return nil
}

// ask runs a probe and checks its result.
func ask(ctx context.Context, probe Probe, c Call) (found ProbeResult, result []byte, err error) {
	err = txn.Run(context.WithValue(ctx, callKey{}, c), time.Until(c.Deadline), func(ctx context.Context) error {
		v, value, err := probe(ctx, c)
		if found = v; err != nil || v != Executed {
			return err
		}
		result, err = encodeResult(value)
		return err
	})
	if err == nil && found != Executed && found != NotExecuted && found != CannotTell {
		err = invalid(fmt.Errorf("a probe returned %q", found))
	}
	return found, result, err
}

func settle(ctx context.Context, pool *pgxpool.Pool, a contract.StepSettleArgs) (row contract.StepSettleRow, err error) {
	err = txn.Restart(ctx, func() error {
		row, err = contract.StepSettle(ctx, pool, a)
		return err
	})
	return row, err
}
