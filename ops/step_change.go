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

// A StepVerdict is your finding about an unknown step.
type StepVerdict struct {
	// Outcome is "executed": it took effect; "refused": it did not and never will; "not_executed":
	// it did not, and may be called again.
	Outcome string
	// Result, which is JSON, and Reference are what the provider returned, if the call was
	// executed. Without Result the handler gets the zero value.
	Result, Reference string
	// Code and Error are for a refusal. Default of Error: By.Reason.
	Code, Error string
}

// Settle ends an unknown step by a verdict. The job that waits for it continues, unless another of
// its steps is unknown too. A command must be settled as well. Fence is required: [Step.Fence] as
// you saw it when you asked the provider. Outcome [Moved]: a newer call has begun, which the
// verdict does not cover. Outcome [Early]: the verdict is not "executed", and a call may still be
// sent.
//
// Errors: those of [JobRef.Retry]; [pawl.ErrArgumentInvalid] also for a missing Fence; 40001, which
// is [pawl.Retryable]: restart.
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
			result.Hint = "only an unknown step needs a verdict"
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

// Again allows another call, under a new key, of a step that its provider refused permanently, such
// as a card that was declined. Retrying the job alone replays the stored refusal, and the provider
// repeats it for the old key. The step is called at the next attempt of its owner: retry its job,
// [Result.JobID]. An unknown step needs a verdict instead.
//
// The new call has no key in common with the old ones. If the provider executed one of them after
// all, the new call is a second effect.
//
// providerKey is the new key, 1 to 255 bytes of printable ASCII; empty means a random UUID. Fence
// is required: [Step.Fence] as you saw it.
//
// Errors: those of Settle; [pawl.ErrKeyInvalid].
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
				// a random key would differ from the one used later
				result.ProviderKey = providerKey
			}
		case Refused:
			result.Hint = "only a permanently refused step can be called again"
			if row.Executed {
				result.Hint = "one of its calls was executed after all: nothing is left to do"
			} else if Status(row.Status) == StatusUnknown {
				result.Hint = "it is unknown whether it was executed: it needs a verdict"
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
