package ops

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// A Gate is one sequence gate at a glance.
type Gate struct {
	Consumer, Resource string
	Last               *int64    // the number that took effect last; nil: none
	Held               int       // deliveries that came before those that must take effect first
	NextHeld           int64     // the lowest of their numbers; only if some are held
	Since              time.Time // when the first of them came; only if some are held
	ReadAt             time.Time // the database's clock at the reading
}

// A GateFilter selects gates. The zero value selects the first 50 of all.
type GateFilter struct {
	Consumer string
	Held     bool   // only those at which something is held
	After    string // only resources behind it, by octets: the last of the page before. Needs Consumer
	Limit    int    // default 50, at most 1000
}

// Gates returns gates by consumer and resource. A page shorter than the limit is the last.
//
// Errors: [pawl.ErrArgumentInvalid].
func Gates(ctx context.Context, db DB, f GateFilter) ([]Gate, error) {
	if err := (Filter{Limit: f.Limit}).check(); err != nil {
		return nil, err
	}
	if f.After != "" && f.Consumer == "" {
		return nil, invalid(errors.New("resources are in order within a consumer, and none is given"), "set Consumer")
	}
	if f.Limit == 0 {
		f.Limit = defaultLimit
	}
	rows, err := contract.GateList(ctx, db, contract.GateListArgs(f))
	if err != nil {
		return nil, err
	}
	gates := make([]Gate, len(rows))
	for i, r := range rows {
		gates[i] = Gate{Consumer: r.Consumer, Resource: r.Resource, Last: r.Last, Held: r.Held, ReadAt: r.ReadAt}
		if r.NextHeld != nil {
			gates[i].NextHeld, gates[i].Since = *r.NextHeld, *r.Since
		}
	}
	return gates, nil
}

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

// Changed reports whether the verb did what it says.
func (r GateResult) Changed() bool { return r.Outcome == GateReset || r.Outcome == GateReleased }

// ResetGate says where the sequence gate of a consumer and resource stands: the next number is last + 1. What was held up to there is
// due at once. [Moved]: the gate does not stand at By.Number any more; setting it back would let numbers pass again.
//
// Errors: [pawl.ErrArgumentInvalid]; a [pawl.Retryable] one if somebody has the gate for more than 2 s.
func ResetGate(ctx context.Context, db DB, consumer, resource string, last int64, by By) (GateResult, error) {
	if err := by.only("gate.reset", "Number"); err != nil {
		return GateResult{}, err
	}
	row, err := contract.GateReset(ctx, db, consumer, resource, last, by.Number, by.Actor, by.Reason)
	r := GateResult{Outcome: Outcome(row.Outcome), Before: row.Before}
	if r.Changed() {
		r.Last = last
	}
	return r, err
}

// ReleaseGate gives up the numbers that are missing before the lowest that is held; what was given up and comes after all is dropped.
// [Idle] means that nothing is held, [Moved] that By.Number is not the lowest that is held any more.
//
// Errors: as [ResetGate].
func ReleaseGate(ctx context.Context, db DB, consumer, resource string, by By) (GateResult, error) {
	if err := by.only("gate.release", "Number"); err != nil {
		return GateResult{}, err
	}
	row, err := contract.GateRelease(ctx, db, consumer, resource, by.Number, by.Actor, by.Reason)
	r := GateResult{Outcome: Outcome(row.Outcome), Before: row.Before}
	if row.Last != nil {
		r.Last = *row.Last
	}
	return r, err
}
