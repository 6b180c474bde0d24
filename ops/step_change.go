package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A StepVerdict is what you found out about an unknown step.
type StepVerdict struct {
	// Outcome is "executed": it took effect; "refused": it did not and never will; "not_executed": it did not, and may be called again.
	Outcome string
	// Result, JSON, and Reference are what the provider made, if it was executed. Without Result the handler gets the zero value.
	Result, Reference string
	// Code and Error are for a refusal. Default of Error: By.Reason.
	Code, Error string
}

// Settle ends the doubt about an unknown step. The job that waits for it goes on, unless another of its steps is unknown too;
// a command has to be settled as well. Fence is required: [Step.Fence] as you saw it when you asked the provider. [Moved]: another call has
// begun since, of which the verdict says nothing. [Early]: it is not "executed", and a call may still be sent.
//
// Errors: as of [JobRef.Retry]; [pawl.ErrArgumentInvalid] also for a missing Fence; 40001, and [pawl.Retryable]: restart.
func (r StepRef) Settle(ctx context.Context, db pawl.DB, v StepVerdict, by By) (Result, error) {
	const op = "step.settle"
	if r.Fence == 0 {
		return Result{}, noFence(op, "StepRef.Fence", "Step.Fence")
	}
	if v.Result != "" && !json.Valid([]byte(v.Result)) {
		return Result{}, invalid(op, errors.New("the result is not JSON"), "give what the handler's call returns, as JSON")
	}
	return by.once(ctx, db, op, func(db pawl.DB) (Result, error) {
		row, err := contract.StepSettle(ctx, db, contract.StepSettleArgs{Scope: r.Scope, Key: r.Key, Step: r.Step, Fence: r.Fence, Verdict: v.Outcome,
			Actor: by.Actor, Reason: by.Reason, Result: v.Result, Reference: v.Reference, Code: v.Code, Error: v.Error})
		result := Result{Outcome: Outcome(row.Outcome), Was: row.Status, Fence: row.Fence, RetryAfter: row.RetryAfter}
		switch result.Outcome {
		case Settled:
			result.Was, result.Now = string(StatusUnknown), row.Status
		case Refused:
			result.Hint = "only what is unknown needs a verdict"
			if Status(row.Status) == StatusPlanned {
				result.Hint = "its next attempt finds out, or makes it unknown; retry its job"
			}
		case Moved:
			result.Hint = fmt.Sprintf("another call has begun since: its fence is %d; ask the provider about that one", row.Fence)
		case Early:
			result.Hint = "look again after that: a frozen attempt may still send it"
		case Absent:
			result.Hint = "list the steps that are unknown"
		}
		return result, err
	})
}

// Again has a step called again, under a new key, that its provider refused for good: a card that was declined, and now is not. A retry of
// its job alone meets the stored refusal, and the provider repeats it for the old key. The step is called at the next attempt of its owner:
// retry its job, [Result.JobID]. A step that is unknown needs a verdict instead.
//
// No key ties the new call to the old ones. If the provider took one of them after all, the new one is a second effect.
//
// providerKey is the new key, 1 to 255 octets of printable ASCII; empty: a random UUID. Fence is required: [Step.Fence] as you saw it.
//
// Errors: as of Settle; [pawl.ErrKeyInvalid].
func (r StepRef) Again(ctx context.Context, db pawl.DB, providerKey string, by By) (Result, error) {
	const op = "step.again"
	if r.Fence == 0 {
		return Result{}, noFence(op, "StepRef.Fence", "Step.Fence")
	}
	if strings.ContainsFunc(providerKey, func(r rune) bool { return r < ' ' || r > '~' }) {
		return Result{}, &pawl.Error{Op: op, Code: pawl.CodeKeyInvalid, Err: fmt.Errorf("the key %.255q does not fit an HTTP header: printable ASCII only", providerKey)}
	}
	return by.once(ctx, db, op, func(db pawl.DB) (Result, error) {
		row, err := contract.StepAgain(ctx, db, contract.StepAgainArgs{Scope: r.Scope, Key: r.Key, Step: r.Step, Fence: r.Fence, ProviderKey: providerKey,
			Actor: by.Actor, Reason: by.Reason})
		result := Result{Outcome: Outcome(row.Outcome), Was: row.Status, ProviderKey: row.ProviderKey, JobID: row.JobID, Fence: row.Fence, RetryAfter: row.RetryAfter}
		switch result.Outcome {
		case Renewed:
			result.Was, result.Now = string(StatusFailedFinal), string(StatusPlanned)
			if by.dryRun {
				result.ProviderKey = providerKey // a random one would be another
			}
		case Refused:
			result.Hint = "only what was refused for good may be called again"
			if row.Executed {
				result.Hint = "a call of it was executed after all: it is done"
			} else if Status(row.Status) == StatusUnknown {
				result.Hint = "whether it was executed is not known: it needs a verdict"
			}
		case Moved:
			result.Hint = fmt.Sprintf("another call has begun since: its fence is %d; look again", row.Fence)
		case Early:
			result.Hint = "look again after that: a frozen attempt may still send an earlier call"
		case Absent:
			result.Hint = "list the steps"
		}
		return result, err
	})
}
