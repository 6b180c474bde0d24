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
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/internal/txn"
)

// A Reconciliation says who is asked about unknown steps. Providers is required.
type Reconciliation struct {
	// Providers has the probe of each [Step.Provider]. Steps of others are left alone. The Call it gets has the owner, the step, the
	// key, and the number and fence of the last call; its verdict settles the step, so what it reads must be strongly consistent.
	Providers map[string]Probe
	// Actor goes to the audit. Default "step.Reconcile".
	Actor string
	// Settle is how long after the last moment of sending a request may still take effect; nobody is asked before. Default 10 s.
	Settle time.Duration
	// Timeout of one probe. Default 30 s.
	Timeout time.Duration
	// Hooks receive what happens: [pawl.EventError] for a probe that failed.
	Hooks pawl.Hooks
}

// Reconciled counts what became of the unknown steps that were looked at.
type Reconciled struct {
	Executed, NotExecuted int // settled
	CannotTell            int // stay unknown
	Failed                int // their probes failed; asked again next time
	Early                 int // something may still be sent, or take effect
	Moved                 int // settled, or called again, while its provider was asked: the verdict was dropped
}

// Reconcile asks the providers about all steps that are unknown, and settles those of which they can tell, with a record in
// pawl.audit; the jobs that wait for them go on. Run it now and then, from a job or by hand. Two at once do no harm: a verdict names the
// call that its provider was asked about, and is dropped if another has begun since. It needs the role pawl_operator.
//
// The error is that of the database; what was settled by then is.
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
	if r.Settle <= 0 {
		r.Settle = defaultSettle
	}
	if r.Timeout <= 0 {
		r.Timeout = defaultTimeout
	}
}

// reconcile asks about one step. An error is the database's.
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

// ask runs a probe, and checks what it says.
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
