package ops

import (
	"context"

	"github.com/pawl-go/pawl/internal/contract"
)

// The outcomes of the verbs for sequence gates, beside [Idle].
const (
	GateReset    Outcome = "reset"
	GateReleased Outcome = "released"
)

// A GateResult is the answer of a verb for sequence gates.
type GateResult struct {
	Outcome Outcome
	Before  *int64 // the number that had taken effect last; nil: none
	Last    int64  // where the gate stands now; 0 if nothing changed
}

// ResetGate says where the sequence gate of a consumer and resource stands: the next number is last + 1. What was held up to there is
// due at once.
//
// Errors: [pawl.ErrArgumentInvalid]; a [pawl.Retryable] one if somebody has the gate for more than 2 s.
func ResetGate(ctx context.Context, db DB, consumer, resource string, last int64, by By) (GateResult, error) {
	if err := by.withoutFrom("gate.reset"); err != nil {
		return GateResult{}, err
	}
	row, err := contract.GateReset(ctx, db, consumer, resource, last, by.Actor, by.Reason)
	return GateResult{Outcome: Outcome(row.Outcome), Before: row.Before, Last: last}, err
}

// ReleaseGate gives up the numbers that are missing before the lowest that is held; what was given up and comes after all is dropped.
// [Idle] means that nothing is held.
//
// Errors: as [ResetGate].
func ReleaseGate(ctx context.Context, db DB, consumer, resource string, by By) (GateResult, error) {
	if err := by.withoutFrom("gate.release"); err != nil {
		return GateResult{}, err
	}
	row, err := contract.GateRelease(ctx, db, consumer, resource, by.Actor, by.Reason)
	r := GateResult{Outcome: Outcome(row.Outcome), Before: row.Before}
	if row.Last != nil {
		r.Last = *row.Last
	}
	return r, err
}
