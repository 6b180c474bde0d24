package step

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
)

// take repeats plan, call and record until the step or this attempt has ended.
func (t *taking) take(ctx context.Context, call func(context.Context, Call) ([]byte, error)) ([]byte, error) {
	for {
		asked := time.Now()
		row, err := t.plan(ctx)
		if err != nil {
			return nil, err
		}
		c := Call{Owner: t.args.Owner, Step: t.step.Name, key: row.ProviderKey, Fence: row.Fence, Number: row.Calls, Again: row.Doubts > 0,
			Deadline: asked.Add(row.Left), seen: &seen{}}
		switch row.Outcome {
		case "replay_success":
			t.emit(ctx, pawl.Event{Kind: pawl.EventReplay, Op: "step.begin"})
			return row.Result, nil
		case "final_failure":
			return nil, pawl.Final(&Refusal{Code: row.FailureCode, Message: row.FailureMessage})
		case "unknown":
			err := unknown(t.step.Name, nil)
			t.emit(ctx, pawl.Event{Kind: pawl.EventUnknown, Op: "step.begin", Err: err})
			return nil, err
		case "wait":
			if !pace.Sleep(ctx, row.RetryAfter) {
				return nil, context.Cause(ctx)
			}
		case "probe":
			if stored, executed, err := t.probe(ctx, c); err != nil || executed {
				return stored, err
			}
		case "call":
			if stored, executed, err := t.call(ctx, c, call); err != nil || executed {
				return stored, err
			}
		default:
			return nil, &pawl.Error{Op: "step.begin", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
		}
	}
}

// plan checks the ownership and reads what may be done. It commits before anything is called.
//
// plan: a crash after COMMIT leaves a call with unknown outcome, though none was made.
func (t *taking) plan(ctx context.Context) (row contract.StepBeginRow, err error) {
	if err := fault.At("step.plan.before"); err != nil {
		return row, err
	}
	err = txn.Restart(ctx, func() error {
		tx, err := txn.Begin(ctx, t.pool, "step.begin", 10*time.Second)
		if err != nil {
			return err
		}
		defer txn.Rollback(ctx, tx)
		if err := t.h.Hold(ctx, tx); err != nil {
			return err
		}
		if row, err = contract.StepBegin(ctx, tx, t.args); err != nil {
			return err
		}
		return txn.Commit(ctx, "step.begin", tx)
	})
	begun := err == nil
	if begun {
		err = txn.Replicated(ctx, t.pool, row.ReadOn)
	}
	if verdict.IsBusy(pawl.CodeOf(err)) {
		err = &pawl.Error{Op: "step.begin", Code: verdict.LockNotAvailable, Err: err, Hint: "the handler's own transaction may hold the row; a step needs a handler without a transaction, such as job.Handle"}
	}
	if row.Outcome == "call" && err != nil && (begun || pawl.MayHaveHappened(err)) {
		t.giveBack(ctx, row.Fence)
	}
	if err == nil {
		err = fault.At("step.plan.after")
	}
	return row, err
}

// call calls the provider and always records how that ended. If executed, stored is the result. If
// it returns neither, the step had ended before, and take reads it again.
//
// call: after a crash here, or before the record has committed, the step's Recovery decides.
func (t *taking) call(ctx context.Context, c Call, fn func(context.Context, Call) ([]byte, error)) (stored []byte, executed bool, err error) {
	if c.Again && t.step.Recovery.name == "accept_duplicates" {
		t.emit(ctx, pawl.Event{Kind: pawl.EventStepRepeated, Op: "step.call"})
	}
	start := time.Now()
	result, failed := t.within(ctx, c, fn)
	outcome, failure := outcomeOf(c, failed)
	forgot := t.step.Recovery.name == "keyed" && outcome != "not_sent" && c.keyless()
	if forgot && failed != nil {
		failed = errors.Join(errKeyless(t.step.Name), failed)
		failure.Error = contract.FailureOf(failed).Error
	}
	if err := fault.At("step.call.after"); err != nil {
		return nil, false, err
	}
	row, err := t.record(ctx, c, contract.StepEndArgs{Outcome: outcome, Result: result, Failure: failure, Keyless: forgot})
	if err != nil {
		return nil, false, pawl.Wrap("step.end", errors.Join(err, failed))
	}
	if err := fault.At("step.record.after"); err != nil {
		return nil, false, err
	}
	switch {
	case row.Status == "absent":
		return nil, false, &pawl.Error{Op: "step.end", Code: pawl.CodeFenceLost, Err: errors.New("the step was purged meanwhile")}
	case row.Kept:
		return nil, false, nil
	case outcome == "executed" && forgot:
		return nil, false, pawl.Final(errKeyless(t.step.Name))
	case outcome == "executed":
		t.emit(ctx, pawl.Event{Kind: pawl.EventSucceeded, Op: "step.call", Took: time.Since(start)})
		return result, true, nil
	case row.Status == "unknown":
		failed = unknown(t.step.Name, failed)
		t.emit(ctx, pawl.Event{Kind: pawl.EventUnknown, Op: "step.call", Err: failed})
	case row.Status == "failed_final":
		failed = pawl.Final(failed)
	}
	return nil, false, failed
}

// errKeyless is the error of a keyed call without its key, final so that the first try shows it.
func errKeyless(step string) error {
	return &pawl.Error{Op: "step.call", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("step %s is Keyed, but nothing asked for the key of its call", step),
		Hint: "send Call.Key, or put step.Transport into the client; a provider that takes no key needs another recovery"}
}

// within calls fn until the call's deadline. A panic becomes an ambiguous outcome.
func (t *taking) within(ctx context.Context, c Call, fn func(context.Context, Call) ([]byte, error)) (result []byte, err error) {
	ctx, cancel := context.WithDeadline(context.WithValue(ctx, callKey{}, c), c.Deadline)
	defer cancel()
	if c.overdue() || ctx.Err() != nil {
		return nil, overdue(ctx)
	}
	err = txn.Run(ctx, time.Until(c.Deadline), func(ctx context.Context) error {
		if err := fault.At("step.call.before"); err != nil {
			return NotSent(err)
		}
		result, err = fn(ctx, c)
		return err
	})
	return result, err
}

// probe asks the provider about earlier calls. If executed, stored is the step's result.
func (t *taking) probe(ctx context.Context, c Call) (stored []byte, executed bool, err error) {
	if c.overdue() || ctx.Err() != nil {
		return nil, false, overdue(ctx)
	}
	found, stored, err := ask(ctx, t.step.Recovery.probe, c)
	if err != nil {
		return nil, false, fmt.Errorf("the probe of step %s: %w", t.step.Name, err)
	}
	row, err := t.record(ctx, c, contract.StepEndArgs{Outcome: string(found), Result: stored})
	switch {
	case err != nil:
		return nil, false, err
	case row.Status == "unknown":
		err = unknown(t.step.Name, errors.New("the probe cannot tell"))
		t.emit(ctx, pawl.Event{Kind: pawl.EventUnknown, Op: "step.probe", Err: err})
		return nil, false, err
	}
	return stored, found == Executed && row.Status == "succeeded" && !row.Kept, nil
}
